package clusteripam

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/multicidr/controller-manager/apis/clusterapi/v1beta2"
	"github.com/multicidr/controller-manager/test/seeds"
)

// TestRestoredHistories runs the commands of the page after random histories, with a kubectl that knows what was in the backup, and with logs in
// which nothing says what came first.
func TestRestoredHistories(t *testing.T) {
	seeds.Each(t, 32, func(t *testing.T, seed uint64) {
		t.Parallel()
		h := newHistory(t, seed)
		defer func() {
			seeds.Report(t, seed, append(h.lines, fmt.Sprintf("the backup: %v\nthe end: %v\nput back: %v", h.backup, h.claims, h.created)))
		}()
		said := h.restore()
		h.judge(said)
		warnings := slices.DeleteFunc(strings.SplitAfter(said, "\n"), func(line string) bool { return strings.Contains(line, "|") })
		if again := h.restore(); again != strings.Join(warnings, "") {
			t.Errorf("run again, the commands say\n%sand not\n%s", again, warnings)
		}
	})
}

type (
	name  struct{ namespace, name string }
	place struct{ kind, pool, address string } // pool is with the namespace, if it has one
	// had is a claim with its IPAddress, if it has one. The claim is being deleted if it leaves, or gone already, and its IPAddress is not.
	had struct {
		place
		allocated, leaves, gone bool
	}
)

// history is what claims did before and after a backup.
type history struct {
	t      *testing.T
	random *rand.Rand
	dir    string
	// claims are those that exist in the end, and backup those of the backup. What the machines of claims use is in claims.
	claims, backup map[name]had
	lines          []string
	created        map[name]v1beta2.IPAddress
}

var networks = []struct{ kind, pool, first string }{
	{"InClusterPrefixPool", "t/v6", "fd01::1"}, {"InClusterIPPool", "t/p", "10.0.0.1"}, {"InClusterIPPool", "u/p", "10.0.0.1"}, {"InClusterIPPool", "t/q.example.com", "10.0.0.1"}, {"GlobalInClusterIPPool", "p", "fd00::1"},
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{t: t, random: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(), claims: map[name]had{}, created: map[name]v1beta2.IPAddress{}}
	steps := 5 + h.random.IntN(60)
	backupAt := h.random.IntN(steps)
	for step := 0; step < steps || len(h.lines) == 0; step++ {
		if step == backupAt {
			h.backup = maps.Clone(h.claims)
			for of, had := range h.backup {
				had.leaves = h.random.IntN(2) == 0
				had.gone = had.leaves && had.allocated && h.random.IntN(2) == 0
				h.backup[of] = had
			}
		}
		h.step()
	}
	return h
}

// step is what happens to one claim: it is created, gets an address, or is gone.
func (h *history) step() {
	of := name{[]string{"t", "u"}[h.random.IntN(2)], []string{"a", "b", "node.example.com", "a-restored-1"}[h.random.IntN(4)]}
	c, exists := h.claims[of]
	switch {
	case !exists:
		network := networks[h.random.IntN(len(networks))]
		if namespace, _, ok := strings.Cut(network.pool, "/"); ok && namespace != of.namespace {
			return
		}
		h.claims[of] = had{place: place{network.kind, network.pool, network.first}}
	case !c.allocated:
		first := c.address
		for n := 0; ; n++ {
			if c.address = fmt.Sprint(first, n); !slices.ContainsFunc(slices.Collect(maps.Values(h.claims)), func(o had) bool { return o.place == c.place }) {
				break
			}
		}
		c.allocated = true
		h.claims[of] = c
		h.lines = append(h.lines, fmt.Sprintf(`"Allocating an address" claim="%s/%s" address=%q kind=%q pool=%q`, of.namespace, of.name, c.address, c.kind, nameOf(c.pool)))
	default:
		delete(h.claims, of)
	}
}

// logs writes the lines into files of all forms, in any order.
func (h *history) logs() string {
	const files = 3
	var texts [files]string
	for i := range texts {
		texts[i] = "I1123 10:00:00.000000 1 controller.go:1] \"Started \xff\"\n"
	}
	texts[0] += `I1123 10:00:00.000000 1 claim.go:9] "Allocating an address" claim="t/ib" address="10.9.0.1" kind="InfobloxIPPool" pool="ib"` + "\n"
	for _, i := range h.random.Perm(len(h.lines)) {
		line := h.lines[i]
		switch h.random.IntN(5) {
		case 0:
			line = "I1231 23:00:01.000000 1 controller.go:309] " + line + "\n"
		case 1:
			line = "2026-10-25T02:10:00.0+02:00 stderr F I1025 00:10:00.000000 1 controller.go:309] " + line + "\n"
		case 2:
			line = `{"log":` + fmt.Sprintf("%q", "I0101 01:00:01.000000 1 controller.go:309] "+line+"\n") + `,"stream":"stderr","time":"2026-11-23T11:00:01Z"}` + "\n"
		case 3:
			line = "I0101 01:00:01.000000 1 controller.go:309] " + line + strings.Repeat("\x00", 99) // what a crash of the machine leaves
		} // and a last line without its end, before the next file
		texts[h.random.IntN(files)] += line
	}
	var names []string
	for i, text := range texts {
		file, err := os.Create(filepath.Join(h.dir, fmt.Sprint(i, ".log")))
		h.do(err)
		w := io.WriteCloser(file)
		if i == 0 {
			w = gzip.NewWriter(file)
		}
		_, err = io.WriteString(w, text)
		h.do(errors.Join(err, w.Close()))
		names = append(names, file.Name())
	}
	return strings.Join(names, " ")
}

// restore runs the commands, and returns what they say.
func (h *history) restore() string {
	const kubectl = `#!/bin/bash -e
case "$*" in
api-resources*--output=name) echo inclusterippools.ipam.cluster.x-k8s.io inclusterprefixpools.ipam.cluster.x-k8s.io | tr ' ' '\n' ;;
api-resources*) echo 'ipaddresses ipam.cluster.x-k8s.io/v1beta2 true IPAddress' ;;
create*) cat "${2#--filename=}" >> created ;;
*InfobloxIPPool*) ;;
get*) cat "${2%%.*}" ;;
esac
`
	h.do(os.WriteFile(filepath.Join(h.dir, "kubectl"), []byte(kubectl), 0o700))
	h.write("namespaces", "t", "u")
	h.write("inclusterippools", "t|InClusterIPPool|p|24|10.0.0.254", "u|InClusterIPPool|p|24|", "t|InClusterIPPool|q.example.com|24|10.0.0.253")
	h.write("globalinclusterippools", "|GlobalInClusterIPPool|p|64|")
	h.write("inclusterprefixpools", "t|InClusterPrefixPool|v6|64|")
	var claims, addresses []string
	for of, c := range h.backup {
		deleted := ""
		if c.leaves {
			deleted = "2026-11-23T10:00:00Z"
		}
		pool := c.kind + "|" + nameOf(c.pool)
		if !c.gone {
			claims = append(claims, of.namespace+"|"+of.name+"|"+deleted+"|"+pool)
			deleted = ""
		}
		if c.allocated {
			addresses = append(addresses, of.namespace+"|"+of.name+"|"+deleted+"|"+pool+"|"+c.address+"|"+of.name)
		}
	}
	for of, a := range h.created {
		addresses = append(addresses, of.namespace+"|"+of.name+"||"+a.Spec.PoolRef.Kind+"|"+a.Spec.PoolRef.Name+"|"+a.Spec.Address+"|"+a.Spec.ClaimRef.Name)
	}
	h.write("ipaddressclaims", claims...)
	h.write("ipaddresses", addresses...)
	output, ok := runRestore(h.t, h.dir, "PATH="+h.dir+":"+os.Getenv("PATH"), "LOGS="+h.logs())
	if !ok {
		h.t.Fatalf("the commands fail:\n%s", output)
	}
	created, err := os.Open(filepath.Join(h.dir, "created"))
	if errors.Is(err, os.ErrNotExist) {
		return output
	}
	h.do(err)
	defer created.Close()
	for decoder := json.NewDecoder(created); ; {
		var a v1beta2.IPAddress
		if err := decoder.Decode(&a); err == io.EOF {
			break
		} else {
			h.do(err)
		}
		of := name{a.Namespace, a.Name}
		if _, ok := h.created[of]; ok || h.backup[of].allocated {
			h.t.Errorf("an IPAddress %v is created, and exists", of)
		}
		h.created[of] = a
	}
	h.do(os.Remove(created.Name()))
	return output
}

// write writes what kubectl prints of a resource.
func (h *history) write(resource string, lines ...string) {
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(resource + "|" + line + "\n")
	}
	h.do(os.WriteFile(filepath.Join(h.dir, resource), []byte(text.String()), 0o600))
}

// judge looks at what every machine uses, and at what every claim will have.
func (h *history) judge(said string) {
	for of, uses := range h.claims {
		if !uses.allocated {
			continue
		}
		held := false
		if c := h.backup[of]; c.allocated && !c.leaves && c.place == uses.place {
			held = true
		}
		for by, a := range h.created {
			if placeOf(a) != uses.place {
				if by == of {
					h.t.Errorf("the claim %v gets %v, and its machine uses %v", of, placeOf(a), uses.place)
				}
				continue
			}
			if by == of || h.backup[by] == (had{}) {
				held = true
			}
			if by != of && h.knows(by) {
				h.t.Errorf("a claim %v gets %v, which the machine of %v uses", by, uses.place, of)
			}
		}
		if !held {
			h.t.Errorf("%v is not held, which the machine of %v uses", uses.place, of)
		}
		for other, c := range h.backup {
			warning := fmt.Sprintf("The IPAddressClaim %s/%s has %s, and %s/%s had it, too.", other.namespace, other.name, c.address, of.namespace, of.name)
			if other != of && c.allocated && !c.leaves && c.place == uses.place && !strings.Contains(said, warning) {
				h.t.Errorf("the commands do not say %q:\n%s", warning, said)
			}
		}
	}
	for of, a := range h.created {
		claim := name{a.Namespace, a.Spec.ClaimRef.Name}
		if c := h.backup[claim]; c.allocated && !c.leaves && c.place == placeOf(a) {
			h.t.Errorf("%v is put back, and %v has it", placeOf(a), claim)
		}
		if c, exists := h.backup[of]; exists && (c.leaves || c.kind != placeOf(a).kind || c.pool != placeOf(a).pool) {
			h.t.Errorf("the IPAddress %v of %v is in the way of the claim %+v", of, placeOf(a), c)
		}
	}
}

// knows reports whether the backup or the logs have a claim.
func (h *history) knows(claim name) bool {
	_, ok := h.backup[claim]
	return ok || strings.Contains(strings.Join(h.lines, "\n"), fmt.Sprintf("claim=%q", claim.namespace+"/"+claim.name))
}

// nameOf returns the name of a pool without its namespace.
func nameOf(pool string) string { return pool[strings.Index(pool, "/")+1:] }

func placeOf(a v1beta2.IPAddress) place {
	pool := a.Spec.PoolRef.Name
	if strings.HasPrefix(a.Spec.PoolRef.Kind, "InCluster") {
		pool = a.Namespace + "/" + pool
	}
	return place{a.Spec.PoolRef.Kind, pool, a.Spec.Address}
}

func (h *history) do(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

package manager

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

// roster has every controller that the binary knows, upstream's and the added ones, in the form that upstream's options need.
type roster struct {
	names    []string          // sorted
	disabled []string          // those that "*" does not enable, sorted
	aliases  map[string]string // alias to name
	added    []Descriptor
}

// newRoster returns an error if the descriptors contradict each other, upstream or themselves.
func newRoster(added []Descriptor) (roster, error) {
	r := roster{
		names:    app.KnownControllers(),
		disabled: app.ControllersDisabledByDefault(),
		aliases:  app.ControllerAliases(),
		added:    added,
	}
	taken := sets.New(r.names...).Insert(slices.Collect(maps.Keys(r.aliases))...)
	for _, d := range added {
		for _, name := range append([]string{d.Name}, d.Aliases...) {
			if name == "" || taken.Has(name) {
				return roster{}, fmt.Errorf("controller %q: the name or alias %q is empty or taken", d.Name, name)
			}
			taken.Insert(name)
		}
		for _, replaced := range d.Replaces {
			if !slices.Contains(app.KnownControllers(), replaced) {
				return roster{}, fmt.Errorf("controller %q replaces %q, which is not an upstream controller", d.Name, replaced)
			}
		}

		r.names, r.disabled = append(r.names, d.Name), append(r.disabled, d.Name)
		for _, alias := range d.Aliases {
			r.aliases[alias] = d.Name
		}
	}
	slices.Sort(r.names)
	slices.Sort(r.disabled)
	return r, nil
}

// enabled reports whether a list of canonical names, as in --controllers, enables the controller.
func (r roster) enabled(name string, controllers []string) bool {
	return genericcontrollermanager.IsControllerEnabled(name, sets.NewString(r.disabled...), controllers)
}

// replacement is an upstream controller that is left out because an added one is enabled.
type replacement struct {
	replaced string
	by       string
}

// replacements returns the upstream controllers that must be left out because only "*" enabled them. If the user named both controllers, it
// returns an error that says what to change.
func (r roster) replacements(controllers []string) ([]replacement, error) {
	named := r.canonical(controllers)
	var result []replacement
	for _, d := range r.added {
		if !r.enabled(d.Name, named) {
			continue
		}
		for _, replaced := range d.Replaces {
			switch {
			case !r.enabled(replaced, named):
			case slices.Contains(named, replaced):
				return nil, fmt.Errorf("--controllers names both %q and %q, which do the same work and must not run together: "+
					"remove %q to use %q, or remove %q to keep the in-tree controller",
					d.Name, replaced, replaced, d.Name, d.Name)
			default:
				result = append(result, replacement{replaced: replaced, by: d.Name})
			}
		}
	}
	return result, nil
}

// canonical resolves aliases in the same way as upstream does for --controllers.
func (r roster) canonical(controllers []string) []string {
	result := make([]string, 0, len(controllers))
	for _, entry := range controllers {
		name, off := strings.CutPrefix(entry, "-")
		if canonical, ok := r.aliases[name]; ok {
			name = canonical
		}
		if off {
			name = "-" + name
		}
		result = append(result, name)
	}
	return result
}

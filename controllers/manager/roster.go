package manager

import (
	"fmt"
	"slices"

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

func newRoster(added []Descriptor) roster {
	r := roster{names: app.KnownControllers(), disabled: app.ControllersDisabledByDefault(), aliases: app.ControllerAliases(), added: added}
	for _, d := range added {
		r.names, r.disabled = append(r.names, d.Name), append(r.disabled, d.Name)
		if d.Alias != "" {
			r.aliases[d.Alias] = d.Name
		}
	}
	slices.Sort(r.names)
	slices.Sort(r.disabled)
	return r
}

// enabled reports whether a list of canonical names, as in --controllers, enables the controller.
func (r roster) enabled(name string, controllers []string) bool {
	return genericcontrollermanager.IsControllerEnabled(name, sets.NewString(r.disabled...), controllers)
}

// replacing returns the enabled added controllers for which an upstream one must be left out, because only "*" in a list of canonical names
// enables that. If both are named, it returns an error that says what to change.
func (r roster) replacing(controllers []string) (all []Descriptor, err error) {
	for _, d := range r.added {
		switch {
		case d.Replaces == "" || !r.enabled(d.Name, controllers) || !r.enabled(d.Replaces, controllers):
		case slices.Contains(controllers, d.Replaces):
			return nil, fmt.Errorf("--controllers names both %q and %q, which do the same work and must not run together: "+
				"remove %q to use %q, or remove %q to keep the in-tree controller", d.Name, d.Replaces, d.Replaces, d.Name, d.Name)
		default:
			all = append(all, d)
		}
	}
	return all, nil
}

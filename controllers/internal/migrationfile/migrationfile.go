// Package migrationfile looks at the configuration of a leader migration.
package migrationfile

import (
	"fmt"

	"k8s.io/controller-manager/config"
)

const where = "in the file of kube-controller-manager and in that of cloud-controller-manager"

// Validate returns an error if a leader migration does not treat a controller and the one that it replaces alike. The shared Lease keeps two programs
// from running both at the same time only if both are named: a controller that is not named runs under the Lease of its program alone. Names are
// compared as they are, and of a name that is there twice the last one counts, as in package leadermigration. The shared Lease must not be the
// program's own, either: each of its two elections would take the other one for another process.
func Validate(c config.GenericControllerManagerConfiguration, name, replaced string) error {
	if !c.LeaderMigrationEnabled {
		return nil
	}
	if c.LeaderElection.LeaderElect && c.LeaderMigration.LeaderName == c.LeaderElection.ResourceName {
		return fmt.Errorf("leaderName in --leader-migration-config is %s, the Lease of this program itself (--leader-elect-resource-name): choose another name, %s", c.LeaderMigration.LeaderName, where)
	}
	return bothNamed(c, name, replaced)
}

func bothNamed(c config.GenericControllerManagerConfiguration, name, replaced string) error {
	components := map[string]string{}
	for _, l := range c.LeaderMigration.ControllerLeaders {
		components[l.Name] = l.Component
	}
	missing := func(named, missing string) error {
		return fmt.Errorf("--leader-migration-config names %s and not %s, which does the same work, so nothing keeps the two from running at the same time: "+
			"add {name: %s, component: %q} to controllerLeaders, %s", named, missing, missing, components[named], where)
	}
	of, named := components[name]
	ofReplaced, namedReplaced := components[replaced]
	switch {
	case !named && !namedReplaced:
		return nil
	case !c.LeaderElection.LeaderElect:
		return fmt.Errorf("--enable-leader-migration has no effect with --leader-elect=false, so nothing keeps %s and %s from running at the same time: remove one of the two flags", name, replaced)
	case named && !namedReplaced:
		return missing(name, replaced)
	case !named && namedReplaced:
		return missing(replaced, name)
	case of != ofReplaced:
		return fmt.Errorf("--leader-migration-config has the component %q for %s and %q for %s, which does the same work: write the same component for both, %s", of, name, ofReplaced, replaced, where)
	}
	return nil
}

package migrationfile

import (
	"strings"
	"testing"

	"k8s.io/controller-manager/config"
)

func TestValidate(t *testing.T) {
	const own, shared = "kube-controller-manager", "node-ipam-migration"
	for file, want := range map[string]string{
		"":                        "",
		"service-controller=*":    "",
		"new=* old=*":             "",
		"new=ccm old=ccm other=*": "",
		"old=ccm new=* old=*":     "",
		"old=*":                   `names old and not new, which does the same work, so nothing keeps the two from running at the same time: add {name: new, component: "*"} to controllerLeaders, in the file of kube-controller-manager and in that of cloud-controller-manager`,
		"new=ccm":                 `names new and not old, which does the same work, so nothing keeps the two from running at the same time: add {name: old, component: "ccm"} to controllerLeaders`,
		"alias-of-new=* old=*":    "names old and not new",
		"new=ccm old=kcm":         `has the component "ccm" for new and "kcm" for old`,
		"new=* old=* new=kcm":     `has the component "kcm" for new and "*" for old`,
	} {
		t.Run(file, func(t *testing.T) {
			var c config.GenericControllerManagerConfiguration
			for l := range strings.FieldsSeq(file) {
				name, component, _ := strings.Cut(l, "=")
				c.LeaderMigration.ControllerLeaders = append(c.LeaderMigration.ControllerLeaders, config.ControllerLeaderConfiguration{Name: name, Component: component})
			}
			check := func(want string) {
				t.Helper()
				err := Validate(c, "new", "old")
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
			check("") // There is no migration.
			c.LeaderElection.ResourceName, c.LeaderMigration.LeaderName = own, shared
			c.LeaderMigrationEnabled, c.LeaderElection.LeaderElect = true, true
			check(want)
			c.LeaderMigration.LeaderName = own
			check("leaderName in --leader-migration-config is kube-controller-manager, the Lease of this program itself (--leader-elect-resource-name): choose another name")
			c.LeaderElection.LeaderElect = false
			if strings.Contains(file, "new") || strings.Contains(file, "old") {
				want = "has no effect with --leader-elect=false"
			}
			check(want)
		})
	}
}

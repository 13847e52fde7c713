// Package seam uses what the staging patches add. The package app that it imports is upstream's with the patches applied, and
// only there while TestStagingPatches runs it.
package seam

import (
	"context"
	"slices"
	"testing"

	"github.com/multicidr/controller-manager/test/parity/testdata/seam/app"
)

func TestRegisteredControllerIsLikeAnyOther(t *testing.T) {
	constructor := func(context.Context, app.ControllerContext, string) (app.Controller, error) { return nil, nil }
	app.RegisterController("added-controller", constructor, []string{"added"}, true)

	if !slices.Contains(app.KnownControllers(), "added-controller") {
		t.Error("not known to --controllers")
	}
	if !slices.Contains(app.ControllersDisabledByDefault(), "added-controller") {
		t.Error("not disabled by default")
	}
	if got := app.ControllerAliases()["added"]; got != "added-controller" {
		t.Errorf("the alias means %q", got)
	}
	if app.NewControllerDescriptors()["added-controller"].GetControllerConstructor() == nil {
		t.Error("no constructor")
	}
}

package faultproxy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/multicidr/controller-manager/test/controlplane"
)

// A real API server takes a manager and its controllers behind the proxy for who they are.
func TestIdentityBeforeAPIServer(t *testing.T) {
	cp := controlplane.StartForTest(t, controlplane.Options{})
	upstream, err := cp.Config("system:kube-controller-manager")
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := cp.ServingCertificate("faultproxy")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(Config{Upstream: upstream, Certificate: certificate, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	manager := rest.CopyConfig(upstream)
	manager.Host = p.URL()

	serviceAccounts := kubernetes.NewForConfigOrDie(cp.AdminConfig()).CoreV1().ServiceAccounts(metav1.NamespaceSystem)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "controller"}}
	if _, err := serviceAccounts.Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request, err := serviceAccounts.CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	controller := rest.AnonymousClientConfig(manager)
	controller.BearerToken = request.Status.Token

	for want, config := range map[string]*rest.Config{
		"system:kube-controller-manager":               manager,
		"system:serviceaccount:kube-system:controller": controller,
	} {
		review, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, review.Status.UserInfo.Username); diff != "" {
			t.Errorf("who the API server saw (-want +got):\n%s", diff)
		}
	}
	// Somebody without credentials may not ask who he is.
	_, err = kubernetes.NewForConfigOrDie(rest.AnonymousClientConfig(manager)).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		t.Errorf("without credentials: %v, want to be refused", err)
	}
}

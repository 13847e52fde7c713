package shell

import "testing"

func TestPlural(t *testing.T) {
	for kind, want := range map[*Kind]string{IPAddresses: "IPAddresses", IPAddressClaims: "IPAddressClaims", Secrets: "Secrets"} {
		if got := kind.plural(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

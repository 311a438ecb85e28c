package controlplane

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
)

// InstallPolicies puts config/policy in force until the test ends. Each of the requests, which must change nothing, is one
// that a policy refuses: the API server obeys new policies, and forgets deleted ones, only after a while.
func (p *ControlPlane) InstallPolicies(t testing.TB, refused ...func(context.Context) error) {
	t.Helper()
	await := func(ctx context.Context, want bool) {
		EventuallyIn(ctx, t, func(ctx context.Context) error {
			for _, request := range refused {
				err := request(ctx)
				// A webhook may refuse the same, in other words.
				if byPolicy := err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy"); byPolicy != want {
					return fmt.Errorf("refused by a policy: %t, want %t: %w", byPolicy, want, err)
				}
			}
			return nil
		})
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, kind := range []client.Object{
			&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicy{},
		} {
			if err := p.Client.DeleteAllOf(ctx, kind, client.MatchingLabels{naming.LabelName: "pg-operator"}); err != nil {
				t.Error(err)
			}
		}
		await(ctx, false)
	})
	p.Kubectl(t, "apply", "--server-side", "-k", filepath.Join(p.Repository, "config", "policy"))
	await(t.Context(), true)
}

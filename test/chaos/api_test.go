package chaos

import (
	"context"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/test/localcluster"
)

// stopAPI stops the API server as it is: requests hang.
func stopAPI(ctx context.Context, b *bed, _ string) (mend, error) {
	return b.hang(ctx, "kube-apiserver")
}

// stopEtcd stops the API server's database as it is: writes and consistent reads hang, watches stay open and say nothing.
func stopEtcd(ctx context.Context, b *bed, _ string) (mend, error) {
	return b.hang(ctx, "etcd")
}

// hang stops a process of the control plane.
func (b *bed) hang(ctx context.Context, process string) (mend, error) {
	return func(ctx context.Context) error { return b.cluster.Signal(ctx, process, "CONT") }, b.cluster.Signal(ctx, process, "STOP")
}

// failWrites has the API server answer 500 to everything that is written in the cluster's namespace: it asks a webhook
// that refuses connections.
func failWrites(ctx context.Context, b *bed, _ string) (mend, error) {
	return b.disturbWrites(ctx, "https://127.0.0.1:1/", admissionregistrationv1.Fail, 1)
}

// slowWrites has each write in the cluster's namespace take two seconds, longer than agents wait, and then succeed: the
// API server asks a webhook at an address that nobody has, and may do without its answer.
func slowWrites(ctx context.Context, b *bed, _ string) (mend, error) {
	return b.disturbWrites(ctx, "https://10.87.0.250/", admissionregistrationv1.Ignore, 2)
}

// disturbWrites puts a webhook before everything that is written in the cluster's namespace.
func (b *bed) disturbWrites(ctx context.Context, url string, otherwise admissionregistrationv1.FailurePolicyType, seconds int32) (mend, error) {
	none := admissionregistrationv1.SideEffectClassNone
	webhook := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "disturb-" + b.namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         "disturb.chaos.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
			}},
			FailurePolicy: &otherwise, SideEffects: &none, TimeoutSeconds: &seconds,
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: b.namespace}},
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	remove := func(ctx context.Context) error { return client.IgnoreNotFound(b.cluster.Client.Delete(ctx, webhook)) }
	if err := b.cluster.Client.Create(ctx, webhook); err != nil {
		return nil, err
	}
	_, err := localcluster.Wait(ctx, time.Minute, "writes are disturbed", func(ctx context.Context) (bool, string) {
		asked := time.Now()
		err := b.cluster.Client.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, GenerateName: "chaos-"},
		}, client.DryRunAll)
		took := time.Since(asked)
		if otherwise == admissionregistrationv1.Fail {
			return apierrors.IsInternalError(err), fmt.Sprintf("a write: %v", err)
		}
		return err == nil && took >= time.Duration(seconds)*time.Second, fmt.Sprintf("a write took %s: %v", took, err)
	})
	return remove, err
}

package kube_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/kube"
)

// TestEnded asks what became of the holder of a Lease.
func TestEnded(t *testing.T) {
	taken := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	terminated := func(after time.Duration) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(taken.Add(after))}
	}
	for name, tc := range map[string]struct {
		holder string
		report string
		state  corev1.ContainerState
		last   *corev1.ContainerStateTerminated
		gone   bool
		ended  bool
	}{
		"runs":                     {state: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		"ended":                    {state: corev1.ContainerState{Terminated: terminated(time.Minute)}, ended: true},
		"ended, waits for another": {state: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}, last: terminated(time.Minute), ended: true},
		"restarted":                {state: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, last: terminated(time.Minute)},
		// The kubelet is late: what ended is the container before that of the holder.
		"an earlier one ended":           {state: corev1.ContainerState{Terminated: terminated(-time.Minute)}},
		"at the same second":             {state: corev1.ContainerState{Terminated: terminated(0)}},
		"never began":                    {state: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}},
		"another one than in the report": {report: "later", state: corev1.ContainerState{Terminated: terminated(time.Minute)}},
		"another one than in the Lease":  {holder: "orders-db-1_later", state: corev1.ContainerState{Terminated: terminated(time.Minute)}},
		"the pod is gone":                {gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			const holder = "orders-db-1_now"
			report := tc.report
			if report == "" {
				report = "now"
			}
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				var object any
				switch {
				case strings.HasSuffix(r.URL.Path, "/leases/orders-db"):
					identity, at := holder, metav1.NewMicroTime(taken)
					object = coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &identity, AcquireTime: &at}}
				case strings.HasSuffix(r.URL.Path, "/pods/orders-db-1") && !tc.gone:
					pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
						Name: "orders-db-1", Annotations: map[string]string{naming.AnnotationReport: `{"incarnation":"` + report + `"}`},
					}}
					pod.Status.ContainerStatuses = []corev1.ContainerStatus{
						{Name: "another", State: corev1.ContainerState{Terminated: terminated(time.Hour)}},
						{Name: naming.ContainerPostgres, State: tc.state, LastTerminationState: corev1.ContainerState{Terminated: tc.last}},
					}
					object = pod
				default:
					w.WriteHeader(http.StatusNotFound)
					return
				}
				if err := json.NewEncoder(w).Encode(object); err != nil {
					t.Error(err)
				}
			}))
			defer api.Close()
			client, err := kube.New(&rest.Config{Host: api.URL}, "orders-db", kube.Pod{Name: "orders-db-0", Namespace: "shop"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Lease(t.Context()); err != nil {
				t.Fatal(err)
			}
			asked := tc.holder
			if asked == "" {
				asked = holder
			}
			if ended, err := client.Ended(t.Context(), asked); err != nil || ended != tc.ended {
				t.Errorf("ended %t, %v", ended, err)
			}
		})
	}
}

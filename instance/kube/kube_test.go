package kube_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/kube"
)

// TestReplacedPod has an agent act whose pod is there, was replaced, or is gone.
func TestReplacedPod(t *testing.T) {
	for name, tc := range map[string]struct {
		uid      types.UID
		broken   bool
		replaced bool
		fine     bool
	}{
		"there":     {uid: "ours", fine: true},
		"replaced":  {uid: "another", replaced: true},
		"gone":      {replaced: true},
		"no answer": {uid: "ours", broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			served := ""
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case tc.broken:
					w.WriteHeader(http.StatusForbidden)
				case r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/endpointslices/orders-db-rw"):
					body, err := io.ReadAll(r.Body)
					if err != nil {
						t.Error(err)
					}
					served = string(body)
					_, _ = io.WriteString(w, "{}")
				case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods/orders-db-0") && tc.uid != "":
					pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: tc.uid}, Spec: corev1.PodSpec{NodeName: "node-7"}}
					if err := json.NewEncoder(w).Encode(pod); err != nil {
						t.Error(err)
					}
				default:
					w.WriteHeader(http.StatusNotFound)
				}
			}))
			defer api.Close()
			client, err := kube.New(&rest.Config{Host: api.URL}, "orders-db",
				kube.Pod{Name: "orders-db-0", Namespace: "shop", IP: "10.0.0.1", UID: "ours"})
			if err != nil {
				t.Fatal(err)
			}
			if err := client.Current(t.Context()); (err == nil) != tc.fine || errors.Is(err, kube.ErrReplaced) != tc.replaced {
				t.Errorf("current: %v", err)
			}
			for _, ready := range []bool{true, false} {
				if err := client.Serve(t.Context(), 5432, ready, 7); (err == nil) != tc.fine {
					t.Errorf("serve %t: %v", ready, err)
				}
			}
			if written := strings.Contains(served, "node-7"); written != tc.fine {
				t.Errorf("the EndpointSlice was written with %q", served)
			}
		})
	}
}

// TestForgedRole has somebody else label a pod with a role.
func TestForgedRole(t *testing.T) {
	for name, tc := range map[string]struct {
		role, found string
		removed     bool
	}{
		"no role, none there": {},
		"no role, one there":  {found: "primary", removed: true},
		"a role":              {role: "replica", found: "replica"},
	} {
		t.Run(name, func(t *testing.T) {
			removed := ""
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				if r.Header.Get("Content-Type") == string(types.MergePatchType) {
					removed = string(body)
				}
				pod := corev1.Pod{}
				if tc.found != "" {
					pod.Labels = map[string]string{naming.LabelRole: tc.found}
				}
				w.Header().Set("Content-Type", "application/json")
				if err := json.NewEncoder(w).Encode(pod); err != nil {
					t.Error(err)
				}
			}))
			defer api.Close()
			client, err := kube.New(&rest.Config{Host: api.URL}, "orders-db",
				kube.Pod{Name: "orders-db-0", Namespace: "shop", UID: "ours"})
			if err != nil {
				t.Fatal(err)
			}
			if err := client.Publish(t.Context(), "{}", tc.role); err != nil {
				t.Fatal(err)
			}
			want := ""
			if tc.removed {
				want = `{"metadata":{"uid":"ours","labels":{"` + naming.LabelRole + `":null}}}`
			}
			if removed != want {
				t.Errorf("patched %q, want %q", removed, want)
			}
		})
	}
}

// TestNoLease asks for a Lease that is not there, and renews one that went, with the account in the end.
func TestNoLease(t *testing.T) {
	there, known := true, true
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case !known:
			w.WriteHeader(http.StatusUnauthorized)
		case !there:
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, `{"metadata":{"name":"orders-db","resourceVersion":"7"}}`)
	}))
	defer api.Close()
	client, err := kube.New(&rest.Config{Host: api.URL}, "orders-db", kube.Pod{Name: "orders-db-0", Namespace: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := client.Lease(t.Context())
	if err != nil || l.Version != "7" {
		t.Fatalf("%+v, %v", l, err)
	}
	there = false
	if _, err := client.Lease(t.Context()); !errors.Is(err, kube.ErrNoLease) {
		t.Errorf("read: %v", err)
	}
	if _, err := client.UpdateLease(t.Context(), l.Taken("orders-db-0_x"), time.Second); !errors.Is(err, kube.ErrNoLease) {
		t.Errorf("write: %v", err)
	}
	known = false
	if _, err := client.UpdateLease(t.Context(), l.Taken("orders-db-0_x"), time.Second); !errors.Is(err, kube.ErrDismissed) {
		t.Errorf("write without an account: %v", err)
	}
}

package quota_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/acme/pg-operator/reconciler/quota"
)

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func pod(requests, limits corev1.ResourceList, more ...corev1.Container) *corev1.Pod {
	p := &corev1.Pod{}
	main := corev1.Container{Name: "postgres"}
	main.Resources.Requests, main.Resources.Limits = requests, limits
	p.Spec.Containers = append([]corev1.Container{main}, more...)
	install := corev1.Container{Name: "install"}
	install.Resources = main.Resources
	p.Spec.InitContainers = []corev1.Container{install}
	return p
}

func limited(name string, hard, used corev1.ResourceList, scopes ...corev1.ResourceQuotaScope) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{}
	q.Name, q.Spec.Scopes, q.Status.Hard, q.Status.Used = name, scopes, hard, used
	return q
}

func TestExceeded(t *testing.T) {
	half := pod(list("cpu", "500m", "memory", "1Gi", "vendor.example.com/device", "1"), list("memory", "2Gi"))
	tests := map[string]struct {
		quotas []*corev1.ResourceQuota
		demand quota.Demand
		want   string
	}{
		"no quota": {demand: quota.Demand{Pod: half, Pods: 3}},
		"room": {
			[]*corev1.ResourceQuota{limited("q", list("pods", "3", "requests.cpu", "1500m"), list("pods", "0"))},
			quota.Demand{Pod: half, Pods: 3},
			"",
		},
		"several together": {
			[]*corev1.ResourceQuota{limited("q", list("pods", "3", "cpu", "1", "limits.memory", "5Gi"), list("cpu", "0"))},
			quota.Demand{Pod: half, Pods: 3},
			"exceeded quota: q, requested: cpu=1500m,limits.memory=6Gi, used: cpu=0,limits.memory=0, limited: cpu=1,limits.memory=5Gi",
		},
		"extended resources": {
			[]*corev1.ResourceQuota{limited("q", list("requests.vendor.example.com/device", "1"), nil)},
			quota.Demand{Pod: half, Pods: 2},
			"exceeded quota: q, requested: requests.vendor.example.com/device=2, used: requests.vendor.example.com/device=0, " +
				"limited: requests.vendor.example.com/device=1",
		},
		"a place that is freed": {
			[]*corev1.ResourceQuota{limited("q", list("pods", "3", "cpu", "1500m"), list("pods", "3", "cpu", "1500m"))},
			quota.Demand{Pod: half, Pods: 1, Freed: half},
			"",
		},
		"a place that is freed in a quota lowered since": {
			[]*corev1.ResourceQuota{limited("q", list("pods", "2"), list("pods", "3"))},
			quota.Demand{Pod: half, Pods: 1, Freed: half},
			"exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2",
		},
		"the first by name": {
			[]*corev1.ResourceQuota{limited("b", list("pods", "0"), nil), limited("a", list("pods", "0"), nil)},
			quota.Demand{Pod: half, Pods: 1},
			"exceeded quota: a, requested: pods=1, used: pods=0, limited: pods=0",
		},
		"other scopes": {
			[]*corev1.ResourceQuota{
				limited("q", list("pods", "0"), nil, corev1.ResourceQuotaScopeBestEffort),
				limited("r", list("pods", "0"), nil, corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopeTerminating),
				limited("s", list("pods", "0"), nil, corev1.ResourceQuotaScopePriorityClass),
			},
			quota.Demand{Pod: half, Pods: 1},
			"",
		},
		"its scope": {
			[]*corev1.ResourceQuota{
				limited("q", list("pods", "0"), nil, corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopeNotTerminating),
			},
			quota.Demand{Pod: half, Pods: 1},
			"exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0",
		},
		"claims": {
			[]*corev1.ResourceQuota{limited("q", list("fast.storageclass.storage.k8s.io/requests.storage", "30Gi"), nil)},
			quota.Demand{Claims: func() corev1.ResourceList {
				sum := quota.Claim("fast", resource.MustParse("20Gi"))
				quota.Add(sum, quota.Claim("fast", resource.MustParse("20Gi")))
				quota.Add(sum, quota.Claim("slow", resource.MustParse("20Gi")))
				return sum
			}()},
			"exceeded quota: q, requested: fast.storageclass.storage.k8s.io/requests.storage=40Gi, " +
				"used: fast.storageclass.storage.k8s.io/requests.storage=0, limited: fast.storageclass.storage.k8s.io/requests.storage=30Gi",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := quota.Exceeded(test.quotas, &test.demand); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestExceededInPlace(t *testing.T) {
	sidecar := corev1.Container{Name: "sidecar"}
	sidecar.Resources.Requests = list("cpu", "100m")
	small, large := pod(list("cpu", "500m"), nil), pod(list("cpu", "600m"), nil)
	injected := pod(list("cpu", "500m"), nil, sidecar)
	full := limited("hidden", list("requests.cpu", "1200m"), list("requests.cpu", "1200m"))
	tests := map[string]struct {
		quotas   []*corev1.ResourceQuota
		refusal  string
		pod, old *corev1.Pod
		fits     bool
	}{
		"the same again": {
			nil, `pods "a" is forbidden: exceeded quota: q, requested: pods=1,requests.cpu=500m, used: pods=2,requests.cpu=1, limited: pods=2,requests.cpu=1`,
			small, small, true,
		},
		"more": {nil, `exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=1, limited: requests.cpu=1`, large, small, false},
		"more, and there is room for that": {
			nil, `exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=1, limited: requests.cpu=1100m`, large, small, true,
		},
		"more than another quota leaves": {
			[]*corev1.ResourceQuota{full}, `exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2`, large, small, false,
		},
		"what a policy adds is counted": {
			[]*corev1.ResourceQuota{limited("hidden", list("requests.cpu", "1200m"), list("requests.cpu", "1200m"))},
			`exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2`, large, injected, false,
		},
		"what a policy adds was counted before": {
			[]*corev1.ResourceQuota{full}, `exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2`, small, injected, true,
		},
		"another scope than before": {
			[]*corev1.ResourceQuota{limited("q", list("pods", "2"), list("pods", "2"), corev1.ResourceQuotaScopeNotBestEffort)},
			`exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2`, small, pod(nil, nil), false,
		},
		"no quota has room for a pod without limits": {nil, `failed quota: q: must specify limits.cpu for: postgres`, small, small, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := quota.ExceededInPlace(test.quotas, test.refusal, test.pod, test.old); (got == "") != test.fits {
				t.Errorf("got %q", got)
			}
		})
	}
}

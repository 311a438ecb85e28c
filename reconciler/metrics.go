package reconciler

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/snapshot"
	"github.com/acme/pg-operator/reconciler/status"
)

const (
	passQuiet  = "quiet"
	passDone   = "done"
	passFailed = "failed"
)

var (
	passes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pg_operator_passes_total",
		Help: "Reconcile passes by result: quiet (nothing had changed), done, failed.",
	}, []string{"result"})
	applies = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pg_operator_apply_total",
		Help: "Children by kind and by what became of them: created, changed, unchanged, skipped, deleted, failed.",
	}, []string{"kind", "result"})
	takenBack = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pg_operator_fields_taken_back_total",
		Help: "Fields of children taken back from other field managers, by kind; events and log name managers and fields.",
	}, []string{"kind"})
	migrated = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pg_operator_children_migrated_total",
		Help: "Children whose fields were taken over from field managers of an earlier operator, by kind.",
	}, []string{"kind"})
	failovers = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pg_operator_failovers_total",
		Help: "Changes of primary that nobody asked for, by cause; events on the PostgresCluster tell the rest.",
	}, []string{"cause"})
	failoverSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "pg_operator_failover_duration_seconds",
		Help:    "Time from the detection of a failed primary until the new one took writes, as the new one says.",
		Buckets: []float64{0.25, 0.5, 1, 1.5, 2, 3, 5, 10, 15, 20, 30, 60, 120, 300},
	})
	clusterReady = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "pg_operator_cluster_ready",
		Help: "1 when the Ready condition of a PostgresCluster is True, else 0.",
	}, []string{"namespace", "name"})
)

func init() {
	metrics.Registry.MustRegister(passes, applies, takenBack, migrated, failovers, failoverSeconds, clusterReady)
	for _, cause := range []string{
		contract.CausePostgresFailed, contract.CausePrimaryDead, contract.CausePrimarySilent, contract.CauseLeaseExpired,
		contract.CauseLeaseCleared, "Other",
	} {
		failovers.WithLabelValues(cause) // From zero, so that the first one is an increase.
	}
}

// measureFailover counts a failover that is told of for the first time; nil is none.
func measureFailover(record *v1alpha1.FailoverRecord) {
	if record == nil {
		return
	}
	failovers.WithLabelValues(status.CauseWord(record)).Inc()
	if d, known := status.FailoverDuration(record); known {
		failoverSeconds.Observe(d.Seconds())
	}
}

// measure counts what a pass did, and logs what people may look for.
func (r *Reconciler) measure(
	ctx context.Context, s *snapshot.Cluster, computed *v1alpha1.PostgresClusterStatus, result *outcome.Result,
) {
	logger := log.FromContext(ctx)
	for _, child := range result.Outcomes {
		applies.WithLabelValues(child.Kind, string(child.Outcome)).Inc()
	}
	for _, taken := range result.TakenBack {
		for _, conflict := range taken.Conflicts {
			takenBack.WithLabelValues(taken.Kind).Inc()
			logger.Info("Took back a field from another field manager", "kind", taken.Kind, "child", taken.Name,
				"manager", conflict.Manager, "subresource", conflict.Subresource, "path", conflict.Path)
		}
	}
	for _, m := range result.Migrated {
		migrated.WithLabelValues(m.Kind).Inc()
		logger.Info("Took over the fields of earlier field managers", "kind", m.Kind, "child", m.Name, "managers", m.Managers)
	}
	pass := passDone
	for i := range result.Failures {
		pass = passFailed
		failure := &result.Failures[i]
		logger.Info("Failed to apply a child", "kind", failure.Kind, "child", failure.Name,
			"class", failure.Class, "reason", failure.Message, "error", failure.Err)
	}
	passes.WithLabelValues(pass).Inc()
	ready := 0.0
	if meta.IsStatusConditionTrue(computed.Conditions, v1alpha1.ConditionReady) {
		ready = 1
	}
	clusterReady.WithLabelValues(s.Object.Namespace, s.Object.Name).Set(ready)
}

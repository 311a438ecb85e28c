package reconciler

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
)

// counted is how many failovers were counted of a cause, and how many of any took how many seconds.
func counted(t *testing.T, cause string) (failovers float64, timed uint64, seconds float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			switch family.GetName() {
			case "pg_operator_failovers_total":
				if metric.GetLabel()[0].GetValue() == cause {
					failovers = metric.GetCounter().GetValue()
				}
			case "pg_operator_failover_duration_seconds":
				timed, seconds = metric.GetHistogram().GetSampleCount(), metric.GetHistogram().GetSampleSum()
			}
		}
	}
	return failovers, timed, seconds
}

func TestMeasureFailover(t *testing.T) {
	_, timedBefore, secondsBefore := counted(t, contract.CauseLeaseExpired)
	detected := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	record := &v1alpha1.FailoverRecord{
		To: "db-1", Cause: contract.CauseLeaseExpired + ": db-0 is silent",
		DetectedTime: &metav1.MicroTime{Time: detected}, PromotedTime: &metav1.MicroTime{Time: detected.Add(1500 * time.Millisecond)},
	}
	measureFailover(record)
	measureFailover(nil)
	measureFailover(&v1alpha1.FailoverRecord{To: "db-1", Cause: "somebody said so"})
	failovers, timed, seconds := counted(t, contract.CauseLeaseExpired)
	if failovers != 1 || timed-timedBefore != 1 || seconds-secondsBefore != 1.5 {
		t.Errorf("%v failovers, %d of them timed, %v seconds", failovers, timed-timedBefore, seconds-secondsBefore)
	}
	if other, _, _ := counted(t, "Other"); other != 1 {
		t.Errorf("%v failovers of other causes", other)
	}
}

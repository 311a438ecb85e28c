package agent

import "github.com/acme/pg-operator/instance/contract"

// hung is for a replica of which a part does not go on. It is started again, once; if that does not help, its data is
// suspected.
func (f Facts) hung(d Decision) Decision {
	d.State = contract.StateHung
	d.Message = f.Server.Hung
	task := TaskRevive
	if f.Repairs.Restarts > 0 {
		d.Message += ", also after a restart"
		if task = TaskDiagnose; !f.reachable(d.Follow) || f.Diagnosis.Verdict != VerdictNone {
			return d
		}
	}
	message := d.Message
	if d = f.begin(task, d); f.Failed.Task == task {
		message += ": " + f.Failed.Message
	}
	d.Message = message
	return d
}

// halt stops PostgreSQL before its data is replaced; one that hangs does not obey.
func (f Facts) halt(d Decision) Decision {
	if f.Server.Hung != "" {
		return f.begin(TaskFence, d)
	}
	return f.begin(TaskStop, d)
}

// Hangs is a diagnosis of data that can follow, but on which PostgreSQL hangs, also after a restart.
func (d Diagnosis) Hangs(why string) Diagnosis {
	if d.Verdict != VerdictStream || why == "" {
		return d
	}
	return Diagnosis{VerdictClone, why + ", also after a restart"}
}

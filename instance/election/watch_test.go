package election

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/acme/pg-operator/instance/lease"
)

// TestWatch tells when the Lease of db-0 may be taken by db-1; each case ends at 20 s.
func TestWatch(t *testing.T) {
	const now = 20 * second
	held := lease.Lease{Holder: "db-0_a", Term: 4, SystemID: "7", Duration: 10 * second, Version: "1", Sync: parse(t, "required ANY 1 (db-1,db-2)")}
	released := held.Yielded(0, "")
	released.Version = "2"
	cleared := held
	cleared.Holder, cleared.Version = "", "2"
	for name, tc := range map[string]struct {
		do             func(*Watch)
		free, suspects bool
		why            string
	}{
		"not read":               {do: func(*Watch) {}, why: "could not be read"},
		"held":                   {do: func(w *Watch) { w.Observe(11*second, held) }, why: "db-0 holds"},
		"silent":                 {do: func(w *Watch) { w.Observe(10*second, held); w.Observe(19*second, held) }, free: true, why: "did not renew"},
		"renewed":                {do: func(w *Watch) { w.Observe(5*second, released); w.Observe(11*second, held) }},
		"released":               {do: func(w *Watch) { w.Observe(19*second, released) }, free: true, why: "released"},
		"cleared":                {do: func(w *Watch) { w.Observe(5*second, held); w.Observe(11*second, cleared) }},
		"cleared long ago":       {do: func(w *Watch) { w.Observe(10*second, cleared) }, free: true},
		"made anew":              {do: func(w *Watch) { w.Observe(5*second, held); w.Observe(11*second, lease.Lease{Version: "2"}) }},
		"made anew, long ago":    {do: func(w *Watch) { w.Observe(5*second, held); w.Observe(10*second, lease.Lease{Version: "2"}) }, free: true},
		"an older one":           {do: func(w *Watch) { w.Told(5); w.Observe(19*second, released) }},
		"proven dead":            {do: func(w *Watch) { w.Observe(19*second, held); w.ProvenDead("db-0_a") }, free: true, why: "dead"},
		"another is proven dead": {do: func(w *Watch) { w.Observe(19*second, held); w.ProvenDead("db-0_b") }},
		"damaged":                {do: func(w *Watch) { w.Observe(second, lease.Lease{Version: "2", Problem: "bad"}) }, why: "bad"},
		"promised":               {do: func(w *Watch) { w.Observe(second, held); w.HoldPromised(11*second, 10*second, "db-0_a", 4) }, why: "promised"},
		"promised long ago":      {do: func(w *Watch) { w.Observe(second, held); w.HoldPromised(10*second, 10*second, "db-0_a", 4) }, free: true},
		"promised, and released": {do: func(w *Watch) { w.HoldPromised(19*second, 10*second, "db-0_a", 4); w.Observe(19*second, released) }, free: true},
		"heard":                  {do: func(w *Watch) { w.Observe(15*second, held); w.Heard(19 * second) }},
		"not heard any more":     {do: func(w *Watch) { w.Observe(15*second, held); w.Heard(18 * second) }, suspects: true},
		"never heard":            {do: func(w *Watch) { w.Observe(15*second, held) }},
		"not heard, promised": {do: func(w *Watch) {
			w.Observe(15*second, held)
			w.Heard(16 * second)
			w.HoldPromised(17*second, 10*second, "db-0_a", 4)
		}},
		"another was heard": {do: func(w *Watch) { w.Observe(15*second, released); w.Heard(16 * second); w.Observe(17*second, held) }},
		"frozen meanwhile": {do: func(w *Watch) {
			w.Observe(15*second, held)
			w.Heard(16 * second)
			w.Awake(16 * second)
			w.Awake(20 * second)
		}},
		"awake meanwhile": {do: func(w *Watch) {
			w.Observe(15*second, held)
			w.Heard(16 * second)
			for at := 16 * second; at <= now; at += second / 4 {
				w.Awake(at)
			}
		}, suspects: true},
	} {
		w := NewWatch("db-1", Rules{LeaseDuration: 5 * second, Suspicion: 1500 * time.Millisecond}, 0)
		tc.do(w)
		free, why := w.Free(now)
		if free != tc.free || !strings.Contains(why, tc.why) {
			t.Errorf("%s: free %t: %s", name, free, why)
		}
		if suspects, why := w.Suspects(now); suspects != tc.suspects && !tc.free {
			t.Errorf("%s: suspects %t: %s", name, suspects, why)
		}
	}
}

// TestVoter has db-2 answer a candidate against term 4, and then a holder of it.
func TestVoter(t *testing.T) {
	request := VoteRequest{Candidate: "db-1", SystemID: "7", Term: 4, Free: true}
	standing := Standing{SystemID: "7", Complete: true}
	for name, tc := range map[string]struct {
		change  func(*VoteRequest, *Standing, *Watch)
		refusal string
	}{
		"grants":                {change: func(*VoteRequest, *Standing, *Watch) {}},
		"hears, but it is free": {change: func(_ *VoteRequest, _ *Standing, w *Watch) { w.Heard(20 * second) }},
		"hears":                 {change: func(r *VoteRequest, _ *Standing, w *Watch) { r.Free = false; w.Heard(20 * second) }, refusal: "hears"},
		"hears no more":         {change: func(r *VoteRequest, _ *Standing, w *Watch) { r.Free = false; w.Heard(10 * second) }},
		"another database":      {change: func(_ *VoteRequest, s *Standing, _ *Watch) { s.SystemID = "8" }, refusal: "the database 8"},
		"no data":               {change: func(_ *VoteRequest, s *Standing, _ *Watch) { *s = Standing{} }, refusal: "no complete data"},
		"not all data":          {change: func(_ *VoteRequest, s *Standing, _ *Watch) { s.Complete = false }, refusal: "no complete data"},
		"leads":                 {change: func(_ *VoteRequest, s *Standing, _ *Watch) { s.Leading = true }, refusal: "leads"},
		"an older term":         {change: func(r *VoteRequest, _ *Standing, _ *Watch) { r.Term = 3 }, refusal: "over"},
		"promised to hold":      {change: func(_ *VoteRequest, _ *Standing, w *Watch) { w.HoldPromised(15*second, 10*second, "db-0_a", 4) }, refusal: "nobody"},
	} {
		for _, probe := range []bool{false, true} {
			w := NewWatch("db-2", Rules{LeaseDuration: 10 * second, Suspicion: second}, 4)
			w.Observe(0, lease.Lease{Holder: "db-0_a", Term: 4, SystemID: "7", Version: "1", Duration: 10 * second})
			v := NewVoter(w, 2)
			r, s := request, standing
			r.Probe = probe
			tc.change(&r, &s, w)
			grant, refusal := v.Consider(20*second, r, s)
			if grant != (tc.refusal == "") || !strings.Contains(refusal, tc.refusal) {
				t.Errorf("%s: %t, %s", name, grant, refusal)
			}
			if promised := grant && !probe; promised != (v.Promised() == 4) || v.MayFollow(4) == promised || !v.MayFollow(5) {
				t.Errorf("%s: promised %d", name, v.Promised())
			}
			hold := v.Hold(20*second, HoldRequest{Holder: "db-0_a", Term: 4, Duration: 10 * second})
			if hold.Granted == (grant && !probe) {
				t.Errorf("%s: hold %+v after a vote %t", name, hold, grant)
			}
			if again, _ := v.Consider(29*second, r, s); hold.Granted && again {
				t.Errorf("%s: votes although it promised to hold", name)
			}
		}
	}
}

func TestHold(t *testing.T) {
	for name, r := range map[string]HoldRequest{
		"another holder": {Holder: "db-0_b", Term: 4, Duration: second}, "an older term": {Holder: "db-0_a", Term: 3, Duration: second},
		"no duration": {Holder: "db-0_a", Term: 4},
	} {
		w := NewWatch("db-2", Rules{}, 0)
		w.Observe(0, lease.Lease{Holder: "db-0_a", Term: 4, Version: "1"})
		if answer := NewVoter(w, 0).Hold(0, r); answer.Granted || answer.Refusal == "" {
			t.Errorf("%s: %+v", name, answer)
		}
	}
}

func TestElectorate(t *testing.T) {
	e := Electorate{}
	e.Is([]string{"a", "b"})
	e.Writing([]string{"a", "c"})
	if got := e.Others("a"); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("perhaps written: %v", got)
	}
	if e.Is([]string{"a", "c"}); !slices.Equal(e.Others("a"), []string{"c"}) {
		t.Errorf("written: %v", e.Others("a"))
	}
}

// TestReaffirm waits longer and longer while members go on promising, and begins anew after a pause.
func TestReaffirm(t *testing.T) {
	r := Reaffirm{}
	if r.Due(0, 4, 3) || !r.Due(0, 4, 4) {
		t.Fatal("it is due when a member promised the own term")
	}
	var pauses []time.Duration
	now := time.Duration(0)
	for range 8 {
		began := now
		r.Done(now)
		for !r.Due(now, 4, 4) {
			now += second
		}
		pauses = append(pauses, (now-began)/second)
	}
	if !slices.Equal(pauses, []time.Duration{1, 2, 4, 8, 16, 30, 30, 30}) {
		t.Errorf("pauses %v", pauses)
	}
	now += time.Minute
	if r.Done(now); !r.Due(now+second, 4, 4) {
		t.Error("it does not begin anew")
	}
}

// TestSilent tells when a holder that does not answer is reported.
func TestSilent(t *testing.T) {
	const now = 20 * second
	held := lease.Lease{Holder: "db-0_a", Term: 4, SystemID: "7", Duration: 10 * second, Version: "1"}
	own := held
	own.Holder = "db-1_a"
	for name, tc := range map[string]struct {
		do     func(*Watch)
		silent bool
	}{
		"not read":           {do: func(*Watch) {}},
		"nobody holds it":    {do: func(w *Watch) { w.Observe(second, lease.Lease{Version: "1"}) }},
		"the instance's own": {do: func(w *Watch) { w.Observe(second, own) }},
		"just taken":         {do: func(w *Watch) { w.Observe(17*second+1, held) }},
		"never heard":        {do: func(w *Watch) { w.Observe(17*second, held) }, silent: true},
		"heard":              {do: func(w *Watch) { w.Observe(second, held); w.Heard(17*second + 1) }},
		"not heard any more": {do: func(w *Watch) { w.Observe(second, held); w.Heard(17 * second) }, silent: true},
		"renewed meanwhile": {do: func(w *Watch) {
			w.Observe(second, held)
			renewed := held
			renewed.Version = "2"
			w.Observe(19*second, renewed)
		}, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWatch("db-1", Rules{Suspicion: 3 * second / 2}, 0)
			tc.do(w)
			if got := w.Silent(now); got != tc.silent {
				t.Errorf("silent: %v", got)
			}
		})
	}
}

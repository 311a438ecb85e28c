package election

import (
	"slices"
	"time"
)

const (
	// dampMin is for how long a standby has to stream until commits may wait for it again, when it left soon after it had
	// come; twice as long each time, up to dampMax.
	dampMin = 5 * time.Second
	dampMax = time.Minute
	// steadyAfter is for how long it has to stream for its departures to be forgotten.
	steadyAfter = 5 * time.Minute
)

// Damping tells which standbys come and go again and again. Commits that wait for one when it leaves stand still until
// that is found out. Its zero value knows of none.
type Damping struct {
	standbys map[string]*visits
}

// visits are how a standby streamed.
type visits struct {
	streaming bool
	// since is when it last came, counts when commits may wait for it.
	since, counts time.Duration
	// pause is how long that was, or would be if it came now.
	pause time.Duration
}

// Look takes note of who streams at now, and returns those of them that have not done so for long enough.
func (d *Damping) Look(now time.Duration, streaming []string) (damped []string) {
	if d.standbys == nil {
		d.standbys = map[string]*visits{}
	}
	for standby, v := range d.standbys {
		if v.streaming && !slices.Contains(streaming, standby) {
			v.leave(now)
		}
	}
	for _, standby := range streaming {
		v := d.standbys[standby]
		if v == nil {
			v = &visits{}
			d.standbys[standby] = v
		}
		if !v.streaming {
			v.streaming, v.since, v.counts = true, now, now+v.pause
		}
		if now < v.counts {
			damped = append(damped, standby)
		}
	}
	return damped
}

func (v *visits) leave(now time.Duration) {
	v.streaming = false
	if now-v.since >= steadyAfter {
		v.pause = 0
		return
	}
	v.pause = min(max(2*v.pause, dampMin), dampMax)
}

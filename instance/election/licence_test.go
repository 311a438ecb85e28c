package election

import (
	"testing"
	"time"
)

const second = time.Second

func TestMargin(t *testing.T) {
	for duration, want := range map[time.Duration]time.Duration{
		2 * second: second / 2, 5 * second: second / 2, 10 * second: second, 60 * second: 6 * second,
	} {
		if got := Margin(duration); got != want {
			t.Errorf("of %v: %v, want %v", duration, got, want)
		}
	}
}

// TestLicence goes through writes of a Lease; each case ends with the licence that they give.
func TestLicence(t *testing.T) {
	renewed := func(l *Licence, now, duration time.Duration) { l.Renewed(l.Renewing(now, duration, false)) }
	alone := func(l *Licence, now time.Duration) { l.Renewed(l.Renewing(now, 10*second, true)) }
	for name, tc := range map[string]struct {
		do   func(l *Licence)
		want time.Duration
	}{
		"none":                     {func(*Licence) {}, 0},
		"taken":                    {func(l *Licence) { renewed(l, 100*second, 10*second) }, 109 * second},
		"not known to be taken":    {func(l *Licence) { l.Renewing(100*second, 10*second, false) }, 0},
		"renewed":                  {func(l *Licence) { renewed(l, 100*second, 10*second); renewed(l, 103*second, 10*second) }, 112 * second},
		"not known to be renewed":  {func(l *Licence) { renewed(l, 100*second, 10*second); l.Renewing(103*second, 10*second, false) }, 109 * second},
		"perhaps shorter":          {func(l *Licence) { renewed(l, 100*second, 60*second); l.Renewing(103*second, 5*second, false) }, 107*second + second/2},
		"shorter":                  {func(l *Licence) { renewed(l, 100*second, 60*second); renewed(l, 103*second, 5*second) }, 107*second + second/2},
		"shorter, hardly anything": {func(l *Licence) { renewed(l, 100*second, 5*second); renewed(l, 104*second, 60*second) }, 158 * second},
		"perhaps longer":           {func(l *Licence) { renewed(l, 100*second, 5*second); l.Renewing(103*second, 60*second, false) }, 104*second + second/2},
		"perhaps shorter, then longer": {func(l *Licence) {
			renewed(l, 100*second, 60*second)
			l.Renewing(103*second, 5*second, false)
			l.Renewing(104*second, 60*second, false)
		}, 107*second + second/2},
		"answered late": {func(l *Licence) {
			first := l.Renewing(100*second, 10*second, false)
			renewed(l, 103*second, 10*second)
			l.Renewed(first)
		}, 112 * second},
		"answered after one that is perhaps shorter": {func(l *Licence) {
			first := l.Renewing(100*second, 60*second, false)
			l.Renewing(103*second, 5*second, false)
			l.Renewed(first)
		}, 0},
		"alone":               {func(l *Licence) { alone(l, 100*second) }, Unlimited},
		"perhaps not alone":   {func(l *Licence) { alone(l, 100*second); l.Renewing(200*second, 10*second, false) }, 209 * second},
		"not alone":           {func(l *Licence) { alone(l, 100*second); renewed(l, 200*second, 10*second) }, 209 * second},
		"alone again":         {func(l *Licence) { renewed(l, 100*second, 10*second); alone(l, 103*second) }, Unlimited},
		"perhaps alone again": {func(l *Licence) { renewed(l, 100*second, 10*second); l.Renewing(103*second, 10*second, true) }, 109 * second},
		"revoked":             {func(l *Licence) { renewed(l, 100*second, 10*second); l.Revoke() }, 0},
		"promised":            {func(l *Licence) { renewed(l, 100*second, 10*second); l.Promised(105*second, 10*second) }, 114 * second},
		"promised early":      {func(l *Licence) { renewed(l, 100*second, 10*second); l.Promised(99*second, 10*second) }, 109 * second},
		"asked too late":      {func(l *Licence) { renewed(l, 100*second, 10*second); l.Promised(109*second, 10*second) }, 109 * second},
		"promised, revoked":   {func(l *Licence) { renewed(l, 100*second, 10*second); l.Revoke(); l.Promised(105*second, 10*second) }, 0},
		"promised without":    {func(l *Licence) { l.Promised(5*second, 10*second) }, 0},
		"promised, alone":     {func(l *Licence) { alone(l, 100*second); l.Promised(105*second, 10*second) }, Unlimited},
	} {
		l := &Licence{}
		if tc.do(l); l.End() != tc.want {
			t.Errorf("%s: until %v, want %v", name, l.End(), tc.want)
		}
	}
}

package world

// This file draws what happens in a world.

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Plan is all that decides a run, beside the order of goroutines.
type Plan struct {
	Seed                        uint64
	Lasts                       time.Duration
	Replicas, Versions, Servers int
	Lag                         time.Duration // the longest by which endpoints, watches and copies of configurations lag
	Clocks                      time.Duration // by which those of API servers are ahead
	CALifetime, Leaf            time.Duration // 0: the default
	URL                         bool          // the program is called by a URL
	Reads, Modes, Shadow        bool          // what the program uses
	Kinds                       bool          // the policy is of a kind that comes and goes
	Wide                        bool          // two steps read policies, of two namespaces, with declarations that differ
	Converts                    bool
	Sets                        bool          // three steps are about replica sets
	Boxes                       bool          // steps that the seed draws are about boxes
	Records                     bool          // replicas record their calls
	AtOnce                      bool          // a Deployment starts all replicas that are lacking at once
	Split                       bool          // the replicas write no configuration, and a CronJob calls RegisterExtensions
	Judges                      bool          // every second version changes nothing
	Late                        bool          // the policy comes after the program, and so does the issuer
	Issued                      bool          // some versions take their certificates from an issuer
	Signed                      bool          // half of these ask a signer
	Callers                     bool          // API servers show certificates
	Unregister                  bool          // UnregisterOnStop
	Drain                       time.Duration // DrainDelay; 0: the default
	Gentle                      bool          // the processes are told to stop at the end, and not killed
	Calls                       time.Duration // mean time between admissions, beside those around a fault
	Faults                      []Fault
}

// Fault is one event. Its Kind is a key of faults.
type Fault struct {
	Kind string
	At   time.Duration // since the beginning
	For  time.Duration // how long it lasts, if it does
	Draw uint64        // decides the rest
}

func (p Plan) serverName() string {
	if p.URL {
		return urlHost
	}
	return serviceName + "." + namespace + ".svc"
}

// target is the address that API servers call.
func (p Plan) target() string {
	if p.URL {
		return webhookconf.Target{Host: urlHost, Port: 443}.String()
	}
	return webhookconf.Target{Service: serviceName, Namespace: namespace, Port: 443}.String()
}

// strong reports whether keys are of another algorithm than the usual one.
func (p Plan) strong() bool { return p.Seed%16 == 6 }

// newest reports whether the program speaks TLS 1.3 alone.
func (p Plan) newest() bool { return p.Seed%2 == 0 }

// drain is how long a replica serves on that stops.
func (p Plan) drain() time.Duration { return cmp.Or(p.Drain, 5*time.Second) }

// blind reports whether a replica that starts cannot know that the program is not registered yet.
func (p Plan) blind() bool { return p.Split && p.Issued }

func (p Plan) lifetimes() seam.Lifetimes { return seam.Lifetimes{Leaf: p.Leaf} }

func (p Plan) String() string {
	var kinds []string
	for _, f := range p.Faults {
		kinds = append(kinds, fmt.Sprintf("%s at %s", f.Kind, f.At.Round(time.Second)))
	}
	uses := ""
	for what, used := range map[string]bool{"a URL": p.URL, "versions that change nothing": p.Judges, "reads": p.Reads, "reads of two namespaces": p.Wide, "a kind that comes and goes": p.Kinds, "modes": p.Modes, "conversions": p.Converts, "steps about replica sets": p.Sets, "steps about boxes": p.Boxes, "recordings": p.Records, "an issuer": p.Issued, "a signer": p.Signed, "callers with certificates": p.Callers, "a split deployment": p.Split, "UnregisterOnStop": p.Unregister, "a stop at the end": p.Gentle} {
		if used {
			uses += ", " + what
		}
	}
	return fmt.Sprintf("seed %d: %d replicas, %d versions, %d API servers, lag up to %s, clocks of API servers %s ahead, CA for %s%s; %s",
		p.Seed, p.Replicas, p.Versions, p.Servers, p.Lag, p.Clocks, p.CALifetime, uses, strings.Join(kinds, ", "))
}

const day = 24 * time.Hour

// firstFault is when the program is expected to be at work.
const firstFault = 5 * time.Minute

// Draw returns the plan of a seed. If kinds are given, its faults are of these alone.
func Draw(seed uint64, lasts time.Duration, only ...string) Plan {
	return draw(seed, lasts, only...).audited(len(only) > 0)
}

// draw returns the plan of a seed without the audits beside its faults.
func draw(seed uint64, lasts time.Duration, only ...string) Plan {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a seed decides
	p := Plan{
		Seed: seed, Lasts: lasts, Replicas: 3, Versions: 1 + rng.IntN(3), Servers: 1 + rng.IntN(2), Calls: 5 * time.Minute,
		Lag: []time.Duration{20 * time.Millisecond, 200 * time.Millisecond, time.Second}[rng.IntN(3)],
	}
	switch rng.IntN(4) {
	case 0:
		p.CALifetime, p.Leaf = 90*time.Minute, 10*time.Minute
	case 1:
		p.Leaf = 20 * time.Minute
	}
	switch rng.IntN(6) {
	case 0:
		p.Clocks = time.Duration(rng.Int64N(int64(2*time.Minute))) - time.Minute
	case 1:
		if p.Leaf == 0 { // a clock that is further ahead than a certificate lasts is not for us to mend
			p.Clocks = time.Duration(rng.Int64N(int64(60*day))) - 30*day
		}
	}
	// A few kinds of faults that come again and again meet each other in more ways than all kinds that come once.
	all := slices.DeleteFunc(slices.Sorted(maps.Keys(faults)), func(kind string) bool { return kind == audits })
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	kinds := all[:1+rng.IntN(4)]
	if rng.IntN(2) == 0 { // most of what meets is met by replicas that come and go
		kinds = append(slices.Clip(kinds), []string{"restart", "rollout"}[rng.IntN(2)])
	}
	if len(only) > 0 {
		kinds = only
	}
	if p.Lag <= 200*time.Millisecond {
		p.Drain = 1500 * time.Millisecond
	}
	uses := func(kind string, share int) bool { return slices.Contains(kinds, kind) || rng.IntN(share) == 0 }
	p.AtOnce = rng.IntN(2) == 0
	p.Gentle, p.URL, p.Reads, p.Modes = rng.IntN(2) == 0, uses("namespace", 5), uses("policy", 4), uses("mode", 5)
	p.Converts = uses("definition", 5) || slices.Contains(kinds, "lists") || slices.Contains(kinds, "key")
	p.Modes = p.Modes || slices.Contains(kinds, audits) && seed%2 == 0
	p.Shadow, p.Reads = slices.Contains(kinds, "load"), p.Reads || slices.Contains(kinds, "sickness") || slices.Contains(kinds, "kind")
	p.Kinds = p.Reads && uses("kind", 4)
	p.Issued, p.Callers = uses("issuance", 10), uses("callers", 12)
	p.Late = (p.Reads || p.Issued) && rng.IntN(4) == 0
	if p.Issued && max(p.Clocks, -p.Clocks) > time.Minute { // the issuer has one clock
		p.Clocks = 0
	}
	if slices.Contains(kinds, "rollout") || slices.Contains(kinds, "registration") {
		p.Versions = 2 + rng.IntN(7)
	}
	p.Wide = p.Reads && !p.Kinds && !p.Late && seed%3 == 1
	p.Judges = p.Versions > 1 && !p.Reads && seed%8 == 3
	// A client of kinds holds a lock while it asks for those of a group, and steps that read wait for that.
	p.Sets = seed%4 == 2 && !p.Reads
	p.Boxes = seed%4 == 1 && !p.Judges
	p.Records = seed%8 == 0
	p.Modes = p.Modes || p.Boxes && seed%16 == 1
	switch n := rng.IntN(400); { // what a pass costs grows with the square
	case n == 0:
		p.Replicas = 20
	case n < 10:
		p.Replicas = 1 + rng.IntN(8)
	}
	if rng.IntN(12) == 0 || slices.Contains(kinds, "mode") && rng.IntN(3) == 0 { // for a laptop
		p.Unregister, p.Replicas, p.Gentle, p.Modes = true, 1, true, p.Modes || rng.IntN(2) == 0
	}
	issued := slices.Contains(kinds, "issuance")
	if n := rng.IntN(12); (n == 0 || n < 3 && issued) && !p.Unregister {
		p.Split, p.Modes, p.Converts, p.Late, p.Issued = true, false, false, p.Late && p.Kinds, issued
		if p.Leaf == 0 && seed%2 == 0 && max(p.Clocks, -p.Clocks) <= time.Minute {
			p.CALifetime, p.Leaf = 90*time.Minute, 10*time.Minute
		}
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(k string) bool {
			return slices.Contains([]string{"mode", "definition", "lists", "key"}, k)
		})
		if len(kinds) == 0 {
			kinds = []string{"rollout"}
			p.Versions = 3
		}
	}
	p.Signed = p.Issued && !p.Split && seed%2 == 0
	if seed%7 == 3 { // longer than the next version waits
		p.Drain = 10 * time.Second
	}
	if rng.IntN(8) == 0 { // it starts amid a fault
		p.Faults = append(p.Faults, Fault{Kind: kinds[rng.IntN(len(kinds))], At: time.Duration(rng.Int64N(int64(5 * time.Second))), For: time.Duration(rng.ExpFloat64() * float64(time.Minute)), Draw: rng.Uint64()})
	}
	for at := firstFault; ; {
		at += time.Duration(rng.ExpFloat64() * float64(25*time.Minute))
		for met := at; ; met += time.Duration(rng.Int64N(int64(20 * time.Second))) {
			if met > lasts-quiet-settling {
				return p
			}
			p.Faults = append(p.Faults, Fault{Kind: kinds[rng.IntN(len(kinds))], At: met, For: time.Duration(rng.ExpFloat64() * float64(time.Minute)), Draw: rng.Uint64()})
			if rng.IntN(2) == 0 {
				break
			}
		}
	}
}

// number is a number in the environment.
func number(name string, usual int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return usual
}

// kinds are those of the faults that EIRINIX_FAULTS names, or none.
func kinds() []string {
	return strings.FieldsFunc(os.Getenv("EIRINIX_FAULTS"), func(r rune) bool { return r == ',' })
}

// lasts is the time of a seed.
const lasts = 2 * time.Hour

// Program bench compares the library's request path with its peers', as ratios of slices of one run (README.md).
//
// The files:
//
//	main.go          flags, the list of sections
//	section_*.go     one part of the report each, with its bounds
//	job.go           the job that every peer does
//	conversion_*.go  the kind that is converted, and the check of the answers
//	peers.go         the list of peers; peer_*.go and ours.go, one each
//	review.go        the captured AdmissionReviews; capture*.go makes them
//	check.go         checks that an answer does the job, before anything is timed
//	measure.go       interleaved slices and paired ratios
//	inprocess.go     a call without a network
//	parent.go        the client of the server process in child.go
//	creator.go       pods created through an API server
//	cost/            the small programs that section cost starts
//	podsecurity/     the run of section podsecurity; peers/ builds its peers
//	report.go        tables and verdicts
//	charts.go        the charts of docs/performance.md; pictures.go makes dark twins of all pictures
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	builtpeers "code.cloudfoundry.org/eirinix/bench/peers"
	"code.cloudfoundry.org/eirinix/bench/podsecurity"
)

// section is a part of the report that can be run alone.
type section struct {
	name string
	run  func(context.Context, *report, settings) error
}

type settings struct {
	plan
	creates   int
	auditPods int
	secrets   int
	cost      costSettings
	attack    time.Duration
	pods      podSecuritySettings
}

// Section cost runs only on request, because it takes half an hour, and so do sections audit and reads, which take some minutes. Section podsecurity takes twenty minutes, so it runs
// on request, or if its peers have been built.
const (
	nameCost        = "cost"
	nameAudit       = "audit"
	nameReads       = "reads"
	namePodSecurity = "podsecurity"
)

var sections = []section{
	{"inprocess", func(_ context.Context, r *report, s settings) error { return sectionInProcess(r, s.plan) }},
	{"unwanted", func(_ context.Context, r *report, s settings) error { return sectionUnwanted(r, s.plan) }},
	{"steps", func(_ context.Context, r *report, s settings) error { return sectionSteps(r, s.plan) }},
	{"containers", func(_ context.Context, r *report, s settings) error { return sectionContainers(r, s.plan) }},
	{"insertion", func(_ context.Context, r *report, _ settings) error { return sectionInsertion(r) }},
	{"conversion", func(_ context.Context, r *report, s settings) error { return sectionConversion(r, s.plan) }},
	{"tls", func(_ context.Context, r *report, s settings) error { return sectionTLS(r, s.plan) }},
	{"apiserver", func(ctx context.Context, r *report, s settings) error { return sectionAPIServer(ctx, r, s.creates) }},
	{"size", func(ctx context.Context, r *report, _ settings) error { return sectionSize(ctx, r) }},
	{nameHostile, func(ctx context.Context, r *report, s settings) error { return sectionHostile(ctx, r, s.attack) }},
	{nameCost, func(ctx context.Context, r *report, s settings) error { return sectionCost(ctx, r, s.cost) }},
	{nameAudit, func(ctx context.Context, r *report, s settings) error { return sectionAudit(ctx, r, s.auditPods) }},
	{nameReads, func(ctx context.Context, r *report, s settings) error { return sectionReads(ctx, r, s.secrets) }},
	{namePodSecurity, func(ctx context.Context, r *report, s settings) error { return sectionPodSecurity(ctx, r, s.pods) }},
}

func main() {
	var (
		s           settings
		names       = make([]string, 0, len(sections))
		captureFlag = flag.Bool("capture", false, "capture the reviews in testdata anew from a real API server, and exit")
		hostileFlag = flag.Bool("hostile", false, "serve what section hostile attacks; used by the program itself")
		chartsFlag  = flag.Bool("charts", false, "draw docs/performance.md's charts and table from "+figuresFile+", and exit")
		childFlag   = flag.Bool("child", false, "serve all peers; used by the program itself")
		auditFlag   = flag.Bool("audit", false, "audit as section audit measures it; used by the program itself")
		readsFlag   = flag.String("reads", "", "hold Secrets as section reads measures it; used by the program itself")
		kubeconfig  = flag.String("kubeconfig", "", "with -child: also run a Manager in this cluster; with -audit and -reads: the cluster")
		strict      = flag.Bool("strict", false, "exit with 1 when a ratio is out of bounds")
	)
	for _, x := range sections {
		if x.name != nameCost && x.name != nameAudit && x.name != nameReads && x.name != nameHostile && (x.name != namePodSecurity || builtpeers.Built("peers")) {
			names = append(names, x.name)
		}
	}
	flag.IntVar(&s.rounds, "rounds", 11, "how many slices of each peer are compared")
	flag.DurationVar(&s.slice, "slice", 50*time.Millisecond, "CPU time of one slice")
	flag.IntVar(&s.creates, "creates", 60, "how many pods are created per set of webhooks in section apiserver")
	flag.IntVar(&s.auditPods, "audit-pods", 50_000, "how many pods section audit creates")
	flag.IntVar(&s.secrets, "secrets", 15_000, "how many Secrets section reads creates")
	flag.StringVar(&s.cost.parts, "parts", "rest,fleet,start", "the parts of section cost that run")
	flag.DurationVar(&s.cost.rest, "rest", 12*time.Minute, "how long section cost watches replicas at rest: whole minutes, as there are things done once a minute")
	flag.StringVar(&s.pods.groups, "groups", strings.Join(podsecurity.Groups(), ","), "the groups of peers of section podsecurity")
	flag.IntVar(&s.pods.rounds, "podsecurity-rounds", 5, "how many slices of each peer section podsecurity compares")
	flag.Float64Var(&s.pods.share, "share", 0.4, "part of kyverno's published test that section podsecurity sends: 1 is all of it, 0.1 a first look")
	flag.StringVar(&s.pods.file, "out", "", "a file for the figures of section podsecurity, as JSON")
	only := flag.String("only", strings.Join(names, ","), "the sections to run; there are also hostile, a minute of attacks, audit and reads, some minutes, cost, which takes half an hour, and podsecurity, which takes twenty minutes and is left out until make peers has run")
	flag.DurationVar(&s.attack, "attack", 10*time.Second, "how long each attack of section hostile lasts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt does not wait for the section to end
	var (
		within = true
		err    error
	)
	switch {
	case *childFlag:
		err = serveAsChild(*kubeconfig, os.Stdin, os.Stdout)
	case *auditFlag:
		err = auditOnce(ctx, *kubeconfig, os.Stdout)
	case *readsFlag != "":
		err = hold(ctx, *readsFlag, *kubeconfig, os.Stdout)
	case *hostileFlag:
		err = serveHostile(ctx, os.Stdin, os.Stdout)
	case *chartsFlag:
		err = drawCharts()
	case *captureFlag:
		err = capture(ctx, "testdata")
	default:
		within, err = bench(ctx, s, strings.Split(*only, ","))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if *strict && !within {
		os.Exit(1)
	}
}

// bench runs the chosen sections and reports whether every ratio is within its bound.
func bench(ctx context.Context, s settings, only []string) (bool, error) {
	quiet()
	r := &report{w: os.Stdout}
	for _, name := range only {
		if !slices.ContainsFunc(sections, func(x section) bool { return x.name == name }) {
			return false, fmt.Errorf("there is no section %q", name)
		}
	}
	for _, x := range sections {
		if !slices.Contains(only, x.name) || ctx.Err() != nil {
			continue
		}
		if err := x.run(ctx, r, s); err != nil {
			return false, fmt.Errorf("section %s: %w", x.name, err)
		}
	}
	return r.summary(), context.Cause(ctx)
}

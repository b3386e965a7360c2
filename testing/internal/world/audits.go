package world

// This file is audits: objects that exist before the program, and tools and replicas that ask the steps about them. What an audit
// has told is judged in audited.go.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/audit"
	"code.cloudfoundry.org/eirinix/internal/policyreport"
)

const (
	audits    = "audit" // the fault that is an audit
	bank      = "bank"  // a second namespace with pods that are audited
	attic     = "attic" // a namespace that is a box
	illImage  = 424242  // the image of a pod that does not decode
	admitted  = "admitted"
	cleanShop = "clean"

	// auditedIn is how long an audit may take at most: it waits two minutes for the API server, for each resource.
	auditedIn = 20 * time.Minute

	// auditedSoon is how long it may take where nothing is in its way. Some steps hang until their deadlines.
	auditedSoon = 3 * time.Minute

	// endsAfter is how long an audit may go on after its context has ended.
	endsAfter = time.Second

	// kindsWithin is how long an API server may leave the question open which kinds it serves.
	kindsWithin = 15 * time.Second
)

// audits reports whether the plan has audits.
func (p Plan) audits() bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == audits })
}

// audited puts audits among the faults of some plans, where the kinds are not chosen.
func (p Plan) audited(chosen bool) Plan {
	rng := rand.New(rand.NewPCG(p.Seed, 4)) //nolint:gosec // a seed decides
	if !chosen && len(p.Faults) > 0 && rng.IntN(6) == 0 {
		for range 1 + rng.IntN(3) {
			beside := p.Faults[rng.IntN(len(p.Faults))]
			at := beside.At + time.Duration(rng.Int64N(int64(time.Minute)))
			p.Faults = append(p.Faults, Fault{Kind: audits, At: min(at, p.Lasts-quiet-settling), For: beside.For, Draw: rng.Uint64()})
		}
		slices.SortStableFunc(p.Faults, func(a, b Fault) int { return int(a.At - b.At) })
	}
	return p
}

// report is an object of the kinds that audits write.
type report struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Summary           map[string]int64 `json:"summary,omitempty"`
	Results           []map[string]any `json:"results,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (r *report) DeepCopyObject() runtime.Object {
	c := *r
	r.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// existing adds to a scheme the kinds that audits need, and returns the objects that exist before the program.
func (w *World) existing(scheme *runtime.Scheme) (all []client.Object) {
	if !w.plan.audits() {
		return nil
	}
	if w.reports() {
		for _, kind := range policyreport.Kinds[2:] {
			scheme.AddKnownTypeWithName(kind, &report{})
		}
	}
	all = append(all, bankNamespace())
	if w.plan.Boxes { // one that the steps about boxes change
		for _, o := range w.existingBoxes(w.stream("existing boxes", 0)) {
			all = append(all, o)
		}
		all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: attic, UID: "uid-attic", Labels: map[string]string{corev1.LabelMetadataName: "attic", boxed: "yes", ribbon: "yes"}, Annotations: map[string]string{nonceKey: "attic"},
		}})
	}
	rng := w.stream("existing", 0)
	add := func(name string, labels map[string]string, env ...string) *unstructured.Unstructured {
		pod := podIn("shop", name)
		pod.SetUID(types.UID("uid-" + name))
		pod.SetLabels(labels)
		pod.SetAnnotations(map[string]string{nonceKey: name})
		var variables []any
		for _, v := range env {
			variables = append(variables, variable(v))
		}
		if container(pod)["env"] = variables; len(env) == 0 {
			delete(container(pod), "env")
		}
		all = append(all, pod)
		return pod
	}
	add("bare", map[string]string{denyLabel: "a_" + plain[1+rng.IntN(3)]})
	add("last", map[string]string{dropped: "yes"}, "last")
	add("mixed", map[string]string{denyLabel: plain[rng.IntN(4)], dropped: "yes"}, "last", dropped, "first")
	add("broken", map[string]string{brokenRule: "yes", denyLabel: ""}, "first")
	add("elsewhere", map[string]string{denyLabel: plain[rng.IntN(4)]}, "last", dropped).SetNamespace(bank)
	if rng.IntN(2) == 0 {
		add("fails", map[string]string{failLabel: []string{"yes", hangs}[rng.IntN(2)], denyLabel: "a"}, "last")
	}
	if rng.IntN(2) == 0 {
		container(add("ill", map[string]string{denyLabel: "a"}))["image"] = int64(illImage)
	}
	r := w.releases[rng.IntN(len(w.releases))]
	done := slices.DeleteFunc(slices.Clone(plain), func(step string) bool { return !r.has(step) })
	notes := &unstructured.Unstructured{Object: map[string]any{}}
	said := map[string]string{orderKey: strings.Join(done, "_")}
	for _, step := range done {
		said["ran-"+step] = r.name
	}
	notes.SetAnnotations(said)
	of := add(admitted, map[string]string{dropped: "yes"}, "last", "first")
	all[len(all)-1] = w.reckoned(of, notes)
	if w.plan.Sets {
		all = append(all, setOf("free", true, false), setOf("unlabelled", false, false), setOf("owned", true, true))
	}
	return append(all, w.existingShops(scheme, rng)...)
}

// existingShops has the cluster serve shops, and returns those that exist: one that each version can hold, and one that none can.
func (w *World) existingShops(scheme *runtime.Scheme, rng *rand.Rand) (all []client.Object) {
	if !w.plan.Converts || rng.IntN(2) == 0 {
		return nil
	}
	scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: group, Version: first, Kind: "Shop"}, &report{})
	clean := newShop(first, cleanShop, 10*rng.Int64N(10), rng)
	clean.notes, clean.shelves, clean.hours, clean.visitors = nil, clean.shown(second), nil, 0
	for i := range clean.shelves {
		clean.shelves[i].width = 0
	}
	for _, of := range []shop{clean, newShop(first, "lossy", rng.Int64N(100), rng)} {
		all = append(all, &unstructured.Unstructured{Object: of.in(first)})
	}
	return all
}

// reports reports whether the cluster has kinds for the reports of audits.
func (w *World) reports() bool { return w.plan.audits() && w.stream("reports", 0).IntN(3) > 0 }

// container is the first container of a pod.
func container(pod *unstructured.Unstructured) map[string]any {
	return pod.Object["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
}

// examination is an audit.
type examination struct {
	*World
	name    string
	release release
	runs    bool // the Manager that audits serves
	options audit.Options
	modes   map[string]modeOf // as they are when it begins
	stored  []*unstructured.Unstructured
	kept    map[string]int // the numbers of results in the reports that there are, by name

	began   time.Time
	told    []audit.Finding
	summary audit.Summary
	err     error
	cut     bool // its context has ended before
	rested  bool // nothing was in its way
	steady  bool // no mode has changed meanwhile
	boxed   map[string]map[string]examined

	command command
	puzzled bool // two of its steps cannot be asked
	lacks   bool // its account may not list Secrets

	mu      sync.Mutex
	listed  []time.Time      // when lists of objects were asked for
	answers map[listing]bool // whether the last page of a list has come
	wrote   []string         // that a tool has asked for
}

// audit has a replica or a tool audit the objects that exist, half of the time while a step that changes pods only watches.
func (w *World) audit(f Fault, rng *rand.Rand) {
	if !w.auditing.CompareAndSwap(false, true) {
		return // one is under way
	}
	defer w.auditing.Store(false)
	if steps := w.common(); w.plan.Modes && !w.plan.Judges && rng.IntN(3) > 0 {
		step := steps[rng.IntN(len(steps))]
		if rng.IntN(4) > 0 {
			step += "-sets"
		}
		w.setMode(step, string([]eirinix.Mode{eirinix.ModeWarn, eirinix.ModeAudit, eirinix.ModeShadow}[rng.IntN(3)]))
		defer w.setMode(step, string(eirinix.ModeDeny))
		if !w.wait(time.Duration(1+rng.Int64N(int64(2*inMode))) + f.For/4) {
			return
		}
	}
	for range 1 + rng.IntN(3) {
		if !w.wait(time.Duration(1 + rng.Int64N(int64(5*time.Second)))) {
			return
		}
		w.examine(rng)
	}
}

// examine is one audit.
func (w *World) examine(rng *rand.Rand) {
	e := &examination{World: w, release: w.live(rng), name: fmt.Sprintf("audit %d", w.audited.Add(1)), modes: map[string]modeOf{}}
	e.options = audit.Options{PageSize: 1 + rng.IntN(4), PolicyReports: w.reports() && rng.IntN(2) == 0}
	switch rng.IntN(5) {
	case 0:
		e.options.Namespace = []string{"shop", bank}[rng.IntN(2)]
	case 1:
		e.options.PagesPerSecond = 1 + 4*rng.Float64()
	case 2:
		if !e.options.PolicyReports {
			e.options.Steps = []string{"a", lenient}
		}
	}
	e.options.Finding = func(f audit.Finding) error {
		e.told = append(e.told, f)
		return nil
	}
	if e.release.crashes {
		return
	}
	ctx, cancel := w.ctx()
	defer cancel()
	if dies := rng.IntN(5) == 0; dies {
		after := time.Duration(rng.Int64N(int64(2 * time.Second)))
		time.AfterFunc(after, cancel)
	}
	h := newHost(e.name)
	wires := w.newWire(h, rng)
	m := w.newManager(h, wires, e.name, "10.2.0.2:"+port, e.release, func(o *eirinix.ManagerOptions) {
		o.RestConfig.Transport = &noting{to: wires, e: e}
	})
	if err := e.release.add(m); err != nil {
		w.violate("an audit cannot be made: %v", err)
		return
	}
	if own := w.stream(e.name, 0); own.IntN(4) == 0 {
		if err := e.puzzles(m); err != nil {
			w.violate("an audit cannot be made: %v", err)
		}
	} else {
		e.command.types(own)
	}
	e.lacks = e.release.records && e.release.audited && w.stream(e.name, 1).IntN(2) == 0
	if p := w.any(rng); p != nil && rng.IntN(3) == 0 {
		e.puzzled, e.lacks, e.command = false, false, command{}
		e.runs, e.release, m = true, p.release, p.manager
		context.AfterFunc(m.GetContext(), cancel)
		w.stirs()
		defer w.stirs()
	}
	e.runIn(ctx, m)
	if !e.runs { // else the goroutines are the replica's
		m.Stop()
		w.tasks.Go(func() { w.leaks(&process{w: w, name: e.name}) })
	}
	h.cut(true)
	wires.cut()
}

// runIn runs the audit of a Manager, and judges it.
func (e *examination) runIn(ctx context.Context, m *eirinix.ExtensionManager) {
	w := e.World
	w.forgot.Store(false)
	e.kept = e.results()
	for _, o := range w.api.Objects() {
		if (slices.Contains([]string{"Pod", kindOfIt, "Shop"}, o.GetKind()) || o.GetName() == attic) && (e.options.Namespace == "" || o.GetNamespace() == e.options.Namespace) {
			e.stored = append(e.stored, o)
		}
	}
	e.began = time.Now()
	w.mu.Lock()
	for step, mode := range w.modes {
		e.modes[step] = mode
	}
	w.mu.Unlock()
	w.tell(named(e.name), "audits as %s (running: %t; %d a page, namespace %q, reports: %t)", e.release.name, e.runs, e.options.PageSize, e.options.Namespace, e.options.PolicyReports)
	limited, cancel := context.WithTimeout(ctx, auditedIn)
	defer cancel()
	ended := make(chan time.Time, 1)
	stop := context.AfterFunc(limited, func() { ended <- time.Now() })
	pprof.Do(limited, pprof.Labels(processLabel, e.name), func(ctx context.Context) { e.summary, e.err = e.audits(ctx, m) })
	now := time.Now()
	if !stop() {
		e.cut = true
		most := endsAfter
		if e.err != nil && (strings.Contains(e.err.Error(), "server groups") || strings.Contains(e.err.Error(), "the resources that the cluster serves")) {
			most = kindsWithin // which kinds there are is asked without the context
		}
		if at := <-ended; now.Sub(at) > most {
			w.violate("%s goes on for %s after its context has ended: %v", e.name, now.Sub(at), e.err)
		}
	}
	w.tell(named(e.name), "ends with %d findings after %s: %v", len(e.told), now.Sub(e.began).Round(time.Millisecond), e.err)
	if now.Sub(e.began) >= auditedIn {
		w.violate("%s has not ended within %s", e.name, auditedIn)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.over:
		return
	default:
	}
	e.rested, e.steady = w.settledSince(e.began) && !w.forgot.Load(), len(w.modes) == len(e.modes)
	for step, mode := range w.modes {
		e.steady = e.steady && e.modes[step] == mode && mode.since.Before(e.began)
	}
	e.judges(now.Sub(e.began))
}

// noting is the way of a tool that audits to the API servers. It notes the requests of the tool.
type noting struct {
	to http.RoundTripper
	e  *examination
}

// RoundTrip implements http.RoundTripper.
func (n *noting) RoundTrip(r *http.Request) (*http.Response, error) {
	n.e.mu.Lock()
	if limit := r.URL.Query().Get("limit"); limit != "" && limit == fmt.Sprint(n.e.options.PageSize) {
		n.e.listed = append(n.e.listed, time.Now())
	}
	if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/selfsubject") {
		n.e.wrote = append(n.e.wrote, r.Method+" "+r.URL.Path)
	}
	n.e.mu.Unlock()
	if n.e.lacks && strings.HasSuffix(r.URL.Path, "/secrets") {
		response := forbids(r)
		n.e.lists(r, response, nil)
		return response, nil
	}
	response, err := n.to.RoundTrip(r)
	if limit := r.URL.Query().Get("limit"); limit != "" && limit == fmt.Sprint(n.e.options.PageSize) {
		n.e.lists(r, response, err)
	}
	return response, err
}

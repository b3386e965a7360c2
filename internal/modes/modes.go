// Package modes changes the modes of steps while the program runs. It reads a ConfigMap with an entry for each step, and
// chooses the mode of a step for each request.
//
// A step whose objects are all in ModeShadow is registered with failurePolicy Ignore. When it leaves that mode, it stays
// in ModeShadow until API servers have observed the registration with its own failurePolicy.
package modes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

// Step is a step as its program defines it.
type Step struct {
	Name  string
	Mode  chain.Mode
	Fixed bool // entries do not apply to it
}

// Modes holds the entries in force, and the steps that are registered as shadows. It is safe for concurrent use.
type Modes struct {
	// Labels returns the labels of a namespace. It is called only for entries that select by labels.
	Labels func(ctx context.Context, namespace string) (labels.Set, error)
	Log    logr.Logger
	Lag    time.Duration // how long an API server may take to observe a registration

	// ConfigMap is the name of the ConfigMap with the entries. It is empty for a program without one.
	ConfigMap string

	steps map[string]Step

	mu       sync.RWMutex
	version  string           // of the ConfigMap that was read last
	entries  map[string]entry // in force
	problems []string         // of the ConfigMap that was read last
	shadows  map[string]bool  // the steps that are registered as shadows
	until    map[string]time.Time
	changed  chan struct{} // holds an element after a change of Shadow
}

// entry is the entry of one step.
type entry struct {
	text  string
	lines []line
}

// New returns Modes without entries.
func New(steps []Step) *Modes {
	m := &Modes{steps: map[string]Step{}, until: map[string]time.Time{}, changed: make(chan struct{}, 1)}
	for _, s := range steps {
		m.steps[s.Name] = s
	}
	return m
}

// Set replaces the entries by those of a ConfigMap, which is nil if there is none. A bad entry is logged, and does not
// replace the last good one. The same ConfigMap again changes nothing.
func (m *Modes) Set(from *corev1.ConfigMap) {
	if from == nil {
		from = &corev1.ConfigMap{}
	}
	var logs []func()
	defer func() { // requests do not wait for the log
		for _, log := range logs {
			log()
		}
	}()
	m.mu.Lock()
	defer m.mu.Unlock()
	version := string(from.UID) + "/" + from.ResourceVersion
	if version == m.version {
		return
	}
	first := m.version == ""
	m.version, m.problems = version, nil
	before := m.onlyShadows()
	entries := map[string]entry{}
	for _, name := range slices.Sorted(maps.Keys(from.Data)) {
		text := from.Data[name]
		lines, err := m.read(name, text)
		if err != nil {
			kept := "the program's own mode applies"
			if last, ok := m.entries[name]; ok {
				entries[name], kept = last, fmt.Sprintf("the last good entry applies: %q", last.text)
			}
			problem := fmt.Sprintf("%s: %v; %s", name, err, kept)
			m.problems = append(m.problems, problem)
			logs = append(logs, func() {
				m.Log.Error(err, "a mode cannot be used", "configMap", m.ConfigMap, "entry", name, "kept", kept)
			})
			continue
		}
		entries[name] = entry{text, lines}
		if text != m.entries[name].text {
			logs = append(logs, func() { m.Log.Info("the mode of a step has changed", "step", name, "mode", text) })
		}
	}
	for name := range m.entries {
		if _, ok := entries[name]; !ok {
			own := m.steps[name].Mode.String()
			logs = append(logs, func() { m.Log.Info("the mode of a step has changed", "step", name, "mode", own+", the program's own") })
		}
	}
	m.entries = entries
	for _, name := range before { // another replica may just have registered it as a shadow
		if !first && !m.onlyShadow(m.steps[name]) {
			m.until[name] = time.Now().Add(m.Lag)
		}
	}
	if !slices.Equal(before, m.onlyShadows()) {
		wait.Signal(m.changed)
	}
}

// read returns the lines of an entry.
func (m *Modes) read(name, text string) ([]line, error) {
	step, ok := m.steps[name]
	switch {
	case !ok:
		return nil, fmt.Errorf("line 1: this program has no step of this name; it has %s", strings.Join(slices.Sorted(maps.Keys(m.steps)), ", "))
	case step.Fixed:
		return nil, fmt.Errorf("line 1: the step has Settings.FixedMode, so its mode cannot be changed; remove the entry")
	}
	return parse(text)
}

// Changed receives an element after the set of steps for which Shadow is true has changed.
func (m *Modes) Changed() <-chan struct{} { return m.changed }

// Shadow reports whether all objects of a step are in ModeShadow.
func (m *Modes) Shadow(name string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.onlyShadow(m.steps[name])
}

// onlyShadow reports whether all objects of a step are in ModeShadow, those without a line too.
func (m *Modes) onlyShadow(s Step) bool {
	lines := m.entries[s.Name].lines
	other := func(l line) bool { return l.mode != chain.ModeShadow }
	return (s.Mode == chain.ModeShadow || slices.ContainsFunc(lines, line.always)) && !slices.ContainsFunc(lines, other)
}

func (m *Modes) onlyShadows() []string {
	names := slices.Sorted(maps.Keys(m.steps))
	return slices.DeleteFunc(names, func(name string) bool { return !m.onlyShadow(m.steps[name]) })
}

// Registered sets the steps that are registered as shadows. A step that is one no more stays a shadow for Lag, like one that
// has just left Shadow. unread means that a registration could not be read, so that a step that was a shadow still counts as one.
func (m *Modes) Registered(shadows map[string]bool, unread bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if unread {
		shadows = maps.Clone(shadows)
		maps.Copy(shadows, m.shadows)
	}
	for name := range m.shadows {
		if !shadows[name] {
			m.until[name] = time.Now().Add(m.Lag)
		}
	}
	m.shadows = shadows
}

// Choose returns the mode of a step for a request. It fails if it needs the labels of a namespace that cannot be read.
func (m *Modes) Choose(ctx context.Context, name string, req *admissionv1.AdmissionRequest) (chain.Mode, error) {
	m.mu.RLock()
	step, lines, held := m.steps[name], m.entries[name].lines, m.held(name)
	m.mu.RUnlock()
	if held {
		return chain.ModeShadow, nil
	}
	drawn := -1.0
	for _, l := range lines {
		if l.percent < everyone && drawn < 0 {
			drawn = draw(name, drawnBy(req))
		}
		if drawn >= l.percent {
			continue
		}
		selected, err := m.selects(ctx, l, req)
		if err != nil {
			return 0, err
		}
		if selected {
			return l.mode, nil
		}
	}
	return step.Mode, nil
}

// draw returns the number in [0, 100) by which an object is in a percentage. It is the same in every process, and for all
// requests that carry the object.
func draw(step, object string) float64 {
	sum := sha256.Sum256([]byte(step + "\x00" + object))
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / (1 << 53) * everyone
}

// drawnBy returns the name by which the object of a request draws, with its namespace: that of its controller, else its
// generateName, which is all that it has while it is created, else its own. ReplicaSets lose the hash from theirs.
//
// The old object counts first, because the user has not written it. Where there is none, a subresource carries something
// else than the object, such as options or an Eviction.
func drawnBy(req *admissionv1.AdmissionRequest) string {
	objects := [][]byte{req.OldObject.Raw, req.Object.Raw}
	if req.SubResource != "" {
		objects = objects[:1]
	}
	object, owner, namespace := metadataOf(objects...), "", req.Namespace
	if o := metav1.GetControllerOfNoCopy(&object); o != nil {
		owner = o.Name
		if hash := object.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; o.Kind == "ReplicaSet" && hash != "" {
			owner = strings.TrimSuffix(owner, "-"+hash)
		}
	}
	if req.Resource.Group == "" && req.Resource.Resource == "namespaces" {
		namespace = "" // it is the object's own name, if that is known
	}
	return namespace + "/" + cmp.Or(owner, object.GenerateName, object.Name, req.Name)
}

// metadataOf decodes the metadata of the first object that has some, and nothing behind them.
func metadataOf(objects ...[]byte) metav1.ObjectMeta {
	for _, object := range objects {
		var metadata metav1.ObjectMeta
		c := jsontext.Reader{Text: object}
		if c.Member("metadata") && decode.Into(c.Value(), &metadata) == nil {
			return metadata
		}
	}
	return metav1.ObjectMeta{}
}

// held reports whether a step is a shadow because API servers may not have observed its own failurePolicy yet. The
// caller holds mu.
func (m *Modes) held(name string) bool {
	until, ok := m.until[name]
	return m.shadows[name] || ok && time.Now().Before(until)
}

// selects reports whether a line's selector selects the namespace of a request. As in a namespaceSelector, a Namespace
// is selected by its own labels. An object in no namespace is not selected.
func (m *Modes) selects(ctx context.Context, l line, req *admissionv1.AdmissionRequest) (bool, error) {
	switch {
	case l.selector == nil:
		return true, nil
	case req.Resource.Group == "" && req.Resource.Resource == "namespaces" && req.SubResource == "":
		object := metadataOf(req.Object.Raw, req.OldObject.Raw)
		return l.selector.Matches(labels.Merge(object.Labels, labels.Set{corev1.LabelMetadataName: req.Name})), nil
	case req.Namespace == "":
		return false, nil
	case !l.needsLabels():
		return l.selector.Matches(labels.Set{corev1.LabelMetadataName: req.Namespace}), nil
	}
	found, err := m.Labels(ctx, req.Namespace)
	if err != nil {
		return false, fmt.Errorf("the mode depends on the labels of namespace %q, which cannot be read; grant get, list and watch on namespaces: %w", req.Namespace, err)
	}
	return l.selector.Matches(found), nil
}

// Describe returns the entries in force, by name, and the problems of the others.
func (m *Modes) Describe() (entries, problems []string) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(m.entries)) {
		entries = append(entries, fmt.Sprintf("%s: %s", name, strings.Join(strings.Fields(strings.ReplaceAll(strings.TrimSpace(m.entries[name].text), "\n", " | ")), " ")))
	}
	for _, name := range slices.Sorted(maps.Keys(m.steps)) {
		if m.shadows[name] && !m.onlyShadow(m.steps[name]) {
			entries = append(entries, name+": Shadow, until its own failurePolicy is registered")
		}
	}
	return entries, slices.Clone(m.problems)
}

// everyone is the percentage of a line without one.
const everyone = 100

// line is one line of an entry. Its mode is for the objects in namespaces that the selector selects, and of those for a
// percentage.
type line struct {
	mode     chain.Mode
	percent  float64         // 0 to 100
	selector labels.Selector // nil selects all namespaces, and objects without one
}

// always reports whether the line is for every object.
func (l line) always() bool { return l.percent == everyone && l.selector == nil }

// parse returns the lines of an entry. Its form is
//
//	Deny where team in (a, b)
//	Warn 10%
//	Shadow
//
// Empty lines and those that begin with # are skipped. An error begins with the number of its line.
func parse(text string) (lines []line, err error) {
	for i, text := range strings.Split(text, "\n") {
		if text = strings.TrimSpace(text); text == "" || text[0] == '#' {
			continue
		}
		if len(lines) > 0 && lines[len(lines)-1].always() {
			return nil, fmt.Errorf("line %d: %q is never reached, because the line before it is for all objects; move it up", i+1, text)
		}
		l, err := parseLine(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", i+1, text, err)
		}
		lines = append(lines, l)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("line 1: no mode; give %s, or remove the entry", names)
	}
	return lines, nil
}

func parseLine(text string) (l line, err error) {
	word, rest, _ := strings.Cut(text, " ")
	if l.mode, err = modeOf(word); err != nil {
		return l, err
	}
	l.percent, rest = everyone, strings.TrimSpace(rest)
	if word, after, _ := strings.Cut(rest, " "); strings.HasSuffix(word, "%") {
		l.percent, err = strconv.ParseFloat(strings.TrimSuffix(word, "%"), 64)
		if err != nil || math.IsNaN(l.percent) || l.percent < 0 || l.percent > everyone {
			return l, fmt.Errorf("%q is no percentage; give a number from 0%% to 100%%", word)
		}
		rest = strings.TrimSpace(after)
	}
	if rest == "" {
		return l, nil
	}
	word, selector, _ := strings.Cut(rest, " ")
	if word != "where" {
		return l, fmt.Errorf("%q is not understood; give a percentage such as 10%%, or where and a selector of namespaces", word)
	}
	l.selector, err = labels.Parse(selector)
	if err == nil && l.selector.Empty() {
		err = fmt.Errorf("there is no selector after where; give one such as team=payments")
	}
	return l, err
}

const names = "Deny, Warn, Audit or Shadow"

func modeOf(word string) (chain.Mode, error) {
	for _, m := range []chain.Mode{chain.ModeDeny, chain.ModeWarn, chain.ModeAudit, chain.ModeShadow} {
		if strings.EqualFold(word, m.String()) {
			return m, nil
		}
	}
	return 0, fmt.Errorf("%q is no mode; give %s", word, names)
}

// needsLabels reports whether a selector, which is not nil, is about more than the name of the namespace.
func (l line) needsLabels() bool {
	requirements, _ := l.selector.Requirements()
	return slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return r.Key() != corev1.LabelMetadataName })
}

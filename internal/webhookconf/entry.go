package webhookconf

// This file groups steps into entries. Each entry is one webhook and one call of the API server.

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/list"
)

// Settings holds the settings of a step or an entry. Its fields are those of the public Settings but Reads; a spec of the
// root compares the two. Every default is filled in. Only the selectors and the conditions can be empty.
type Settings struct {
	Operations []admissionregistrationv1.OperationType `json:"-"` // empty: they are in Rules
	Rules      []admissionregistrationv1.RuleWithOperations

	// Namespaces is the selector of the user. If it is nil or empty, Options.Namespace applies. It does not contain the
	// namespaces that are always excluded: building adds them.
	Namespaces *metav1.LabelSelector

	Objects              *metav1.LabelSelector // nil and empty select all objects
	Conditions           []admissionregistrationv1.MatchCondition
	FailurePolicy        admissionregistrationv1.FailurePolicyType
	MatchPolicy          admissionregistrationv1.MatchPolicyType
	Timeout              time.Duration                                  // whole seconds, 1 to 30; 0 for a share of its call's timeout
	Reinvoke             admissionregistrationv1.ReinvocationPolicyType // for mutating steps
	SideEffects          admissionregistrationv1.SideEffectClass
	Isolated             bool // always has an entry of its own
	AllowClusterCritical bool `json:"ClusterCritical"` // its name in digests; can match the otherwise excluded namespaces and resources, and everything with Fail

	EveryUpdate bool `json:",omitempty"` // no condition leaves out what changes nothing; see conditions.go

	Owned OwnedPolicy `json:"-"` // of a mutating step; nothing is registered of it

	Mode          Mode `json:"-"` // a step that changes its mode keeps its entry
	FixedMode     bool `json:"-"`
	DependsOnUser bool `json:"-"` // an audit does not ask the step
}

// OwnedPolicy is the public OwnedPolicy of a step.
type OwnedPolicy string

// The policies.
const (
	OwnedAuto OwnedPolicy = ""
	OwnedSkip OwnedPolicy = "Skip"
	OwnedSee  OwnedPolicy = "See"
)

// Mode is the public Mode of a step.
type Mode string

// The modes. No registration depends on them, except that the failurePolicy of a step in ModeShadow is Ignore.
const (
	ModeDeny  Mode = "Deny"
	ModeWarn  Mode = "Warn"
	ModeAudit Mode = "Audit"

	ModeShadow Mode = "Shadow"
)

// Step is the registration of one step: an extension, or a definition of its kind.
type Step struct {
	Name       string // a DNS label, unique among the mutating and among the validating steps
	Validating bool   // otherwise mutating

	// Kind is the kind of the objects that match the rules. It is zero if the rules match several kinds, or any, as
	// with wildcards. Such a step is never grouped.
	Kind schema.GroupVersionKind

	// Shadow is set if all runs of the step are in ModeShadow, and its failurePolicy is Ignore for that reason alone.
	Shadow bool

	// Waits is set while the step must not be added to the configurations. It distinguishes no versions.
	Waits bool

	Settings
}

// Key identifies the step across all versions of a program. A step of the same name for another kind is a different
// step.
func (s Step) Key() string {
	if s.Kind.Empty() {
		return s.Name
	}
	return s.Name + "@" + s.Kind.GroupVersion().String() + "/" + s.Kind.Kind
}

// Entry is one webhook of a configuration: one call of the API server, for one or more steps. Group makes it.
type Entry struct {
	Name       string // a DNS label
	Path       string // of lowercase DNS segments
	Validating bool
	Steps      []Step // in the order in which they were passed to Group

	// Converts is the CustomResourceDefinition whose objects the entry converts. It is empty for a webhook of admission.
	// Other than its steps' names, a conversion has no settings.
	Converts string

	// Settings is the content of the webhook, before the safe exclusions. With one step, it is that step's own.
	// Otherwise, it is the settings that its steps have in common, the rules of all of them, and enough time for all.
	Settings
}

// PathOf returns the path of an entry for admission.
func PathOf(validating bool, name string) string {
	if validating {
		return "/validate/" + name
	}
	return "/mutate/" + name
}

// VersionStep returns the step that stands for a version of a CustomResourceDefinition.
func VersionStep(version, crd string) Step { return Step{Name: version + "." + crd} }

// VersionOf returns the version that the step with this key stands for.
func VersionOf(key, crd string) string { return strings.TrimSuffix(key, "."+crd) }

// StepNames returns the names of the steps that the entry calls.
func (e Entry) StepNames() []string {
	return list.Of(e.Steps, func(s Step) string { return s.Name })
}

// groupable reports whether the step can share an entry.
func (s Step) groupable() bool {
	return !s.Isolated && !s.Kind.Empty() && len(resourcesOf(s.Rules)) > 0 && !slices.ContainsFunc(s.Rules, hasWildcard)
}

func (s Step) ignores() bool { return s.FailurePolicy == admissionregistrationv1.Ignore }

// hasWildcard reports whether the rule can match more than one kind. A wildcard among the operations does not count.
func hasWildcard(r admissionregistrationv1.RuleWithOperations) bool {
	wild := func(s string) bool { return strings.Contains(s, "*") }
	return slices.ContainsFunc(r.APIGroups, wild) || slices.ContainsFunc(r.APIVersions, wild) || slices.ContainsFunc(r.Resources, wild)
}

// maxLabel is the maximum length of a DNS label. An entry's name is one.
const maxLabel = 63

// groupKey holds the settings that the steps of an entry have in common. Its JSON form determines the entry's name, so
// it must not change from one version of this library to the next. A new field must be omitted when it is zero.
type groupKey struct {
	Validating           bool                                     `json:"validating,omitempty"`
	Kind                 string                                   `json:"kind"`
	Resources            []string                                 `json:"resources"`
	Namespaces           []string                                 `json:"namespaces,omitempty"`
	Objects              []string                                 `json:"objects,omitempty"`
	AllowClusterCritical bool                                     `json:"clusterCritical,omitempty"`
	Conditions           []admissionregistrationv1.MatchCondition `json:"conditions,omitempty"`
	MatchPolicy          string                                   `json:"matchPolicy,omitempty"`
	SideEffects          string                                   `json:"sideEffects,omitempty"`
	Reinvoke             string                                   `json:"reinvoke,omitempty"`
	EveryUpdate          bool                                     `json:"everyUpdate,omitempty"`
	Apart                string                                   `json:"apart,omitempty"` // see Group
}

func (s Step) groupKey() groupKey {
	k := groupKey{
		Validating:           s.Validating,
		Kind:                 s.Kind.GroupVersion().String() + "/" + s.Kind.Kind,
		Resources:            resourcesOf(s.Rules),
		Namespaces:           canonicalSelector(s.Namespaces),
		Objects:              canonicalSelector(s.Objects),
		AllowClusterCritical: s.AllowClusterCritical, // it determines which namespaces are excluded
		Conditions:           slices.Clone(s.Conditions),
		MatchPolicy:          string(s.MatchPolicy),
		SideEffects:          string(s.SideEffects),
		EveryUpdate:          s.EveryUpdate,
	}
	if !s.Validating {
		k.Reinvoke = string(s.Reinvoke)
	}
	// All conditions must hold, so their order is irrelevant.
	slices.SortStableFunc(k.Conditions, func(a, b admissionregistrationv1.MatchCondition) int { return cmp.Compare(a.Name, b.Name) })
	return k
}

func (k groupKey) String() string {
	text, _ := json.Marshal(k) // strings and booleans only
	return string(text)
}

// entryName returns a DNS label that depends only on the key.
func (k groupKey) entryName() string {
	sum := sha256.Sum256([]byte(k.String()))
	suffix := "-" + hex.EncodeToString(sum[:4])
	resource := k.Resources[0][strings.LastIndexByte(k.Resources[0], ' ')+1:]
	label := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(resource))
	label = strings.Trim(label[:min(len(label), maxLabel-len(suffix))], "-")
	return strings.TrimPrefix(label+suffix, "-")
}

// Group distributes the steps over as few entries as possible without changing which requests each step is called for.
// This holds even while the program is down: a webhook then rejects exactly the requests that its steps would reject
// with an entry each.
//
// So steps share an entry if they are for the same resource and kind, and agree in both selectors, the matchConditions,
// EveryUpdate and the policies. Their rules can differ, because a list of rules is exactly their union, and the handler checks each
// step's own rules again. But a step that ignores failures shares an entry with failurePolicy Fail only if its rules
// equal those of each step that fails: otherwise it would widen the set of requests that fail.
//
// The entries are in the order of their first steps. Names and paths derive from the settings that the steps of an
// entry have in common. They stay the same when another step is added or removed.
func Group(steps []Step) []Entry {
	failing := map[string][]Step{} // by group key
	for _, s := range steps {
		if s.groupable() && !s.ignores() {
			key := s.groupKey().String()
			failing[key] = append(failing[key], s)
		}
	}
	type call struct {
		name  string
		steps []Step
		key   groupKey
		part  int // of those with one group key, where a single call would not have the time
	}
	var calls []*call
	last := map[string]*call{} // by group key
	for _, s := range steps {
		if !s.groupable() {
			calls = append(calls, &call{name: s.Name, steps: []Step{s}})
			continue
		}
		key := s.groupKey()
		differs := func(other Step) bool { return !sameRules(other.Rules, s.Rules) }
		if s.ignores() && slices.ContainsFunc(failing[key.String()], differs) {
			key.Apart = string(admissionregistrationv1.Ignore)
		}
		group := key.String()
		c := last[group]
		if c == nil || timeoutOf(append(c.steps, s)) > maxTimeout {
			part := 1
			if c != nil {
				part = c.part + 1
				key.Apart = c.key.Apart + strconv.Itoa(part)
			}
			c = &call{name: key.entryName(), key: key, part: part}
			calls, last[group] = append(calls, c), c
		}
		c.steps = append(c.steps, s)
	}
	return list.Of(calls, func(c *call) Entry { return merge(c.name, c.steps) })
}

const (
	// ShareTimeout is the total time of those steps of an entry that set no timeout. It is half of the API server's
	// default, because every object waits for it.
	ShareTimeout = 5 * time.Second

	// maxTimeout is the longest timeout that the API server accepts.
	maxTimeout = 30 * time.Second

	// RequestSeconds is the time that webhooks may take together for one request. An API server ends a request that has no
	// other timeout after 34 s (k8s.io/apiserver/pkg/endpoints/handlers/rest.go, requestTimeoutUpperBound).
	RequestSeconds = 30
)

// timeoutOf returns the time that steps need in one call: the sum of their timeouts, and one share for those without
// one.
func timeoutOf(steps []Step) (sum time.Duration) {
	share := time.Duration(0)
	for _, s := range steps {
		sum += s.Timeout
		if s.Timeout == 0 {
			share = ShareTimeout
		}
	}
	return sum + share
}

// merge returns the entry of steps that share a group key, or of a single step. Each setting is that of the first step,
// unless steps of one entry can differ in it.
func merge(name string, steps []Step) Entry {
	e := Entry{Name: name, Path: PathOf(steps[0].Validating, name), Validating: steps[0].Validating, Steps: steps, Settings: steps[0].Settings}
	e.Namespaces, e.Objects, e.Conditions = orEmpty(e.Namespaces), orEmpty(e.Objects), slices.Clone(e.Conditions)
	e.Timeout = timeoutOf(steps)
	rules := slices.Clone(e.Rules)
	for _, s := range steps[1:] {
		rules = append(rules, s.Rules...)
		if !s.ignores() {
			e.FailurePolicy = s.FailurePolicy
		}
	}
	if e.Rules = ownRules(rules); len(steps) > 1 {
		e.Rules = union(rules)
	}
	return e
}

package convert_test

// This file holds a kind of three versions for the specs: the spoke v1alpha1 with Go types, the spoke v1beta1 with
// trees, and the hub v1.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/conversion"

	"code.cloudfoundry.org/eirinix/internal/convert"
)

const group = "batch.example.com"

// Alpha is a CronJob of v1alpha1. v1 lacks its owner, and the notes of steps and rules.
type Alpha struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              AlphaSpec `json:"spec,omitempty"`
}

type AlphaSpec struct {
	Schedule string          `json:"schedule"` // minute and hour, then an optional comment
	Suspend  *bool           `json:"suspend,omitempty"`
	Limit    int64           `json:"limit,omitempty"`
	Owner    *AlphaOwner     `json:"owner,omitempty"`
	Steps    []AlphaStep     `json:"steps,omitempty"`
	Rules    []AlphaRule     `json:"rules,omitempty"`
	Template *corev1.PodSpec `json:"template,omitempty"`
}

type AlphaOwner struct {
	Team  string   `json:"team,omitempty"`
	Mails []string `json:"mails,omitempty"`
}

type AlphaStep struct {
	Name  string `json:"name"`
	Image string `json:"image,omitempty"`
	Note  string `json:"note,omitempty"`
	Local bool   `json:"local,omitempty"` // v1 lacks such a step
}

type AlphaRule struct {
	Match  string `json:"match"`
	Weight int64  `json:"weight,omitempty"`
	Note   string `json:"note,omitempty"`
}

// Job is a CronJob of v1. v1alpha1 lacks its time zone.
type Job struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              JobSpec `json:"spec,omitempty"`
}

type JobSpec struct {
	Schedule JobSchedule     `json:"schedule"`
	TimeZone *string         `json:"timeZone,omitempty"`
	Suspend  bool            `json:"suspend"`
	Limit    int64           `json:"limit,omitempty"`
	Steps    []JobStep       `json:"steps,omitempty"`
	Rules    []JobRule       `json:"rules,omitempty"`
	Template *corev1.PodSpec `json:"template,omitempty"`
}

type JobSchedule struct {
	Minute string `json:"minute"`
	Hour   string `json:"hour,omitempty"`
}

type JobStep struct {
	Name  string `json:"name"`
	Image string `json:"image,omitempty"`
}

type JobRule struct {
	Match  string `json:"match"`
	Weight int64  `json:"weight,omitempty"`
}

func (*Job) Hub() {}

// DeepCopyObject is as controller-gen would write it.
func (a *Alpha) DeepCopyObject() runtime.Object {
	c := *a
	a.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Suspend = pointerTo(a.Spec.Suspend)
	if a.Spec.Owner != nil {
		c.Spec.Owner = &AlphaOwner{a.Spec.Owner.Team, slices.Clone(a.Spec.Owner.Mails)}
	}
	c.Spec.Steps, c.Spec.Rules = slices.Clone(a.Spec.Steps), slices.Clone(a.Spec.Rules)
	c.Spec.Template = a.Spec.Template.DeepCopy()
	return &c
}

// DeepCopyObject is as controller-gen would write it.
func (j *Job) DeepCopyObject() runtime.Object {
	c := *j
	j.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.TimeZone = pointerTo(j.Spec.TimeZone)
	c.Spec.Steps, c.Spec.Rules = slices.Clone(j.Spec.Steps), slices.Clone(j.Spec.Rules)
	c.Spec.Template = j.Spec.Template.DeepCopy()
	return &c
}

func pointerTo[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

func (a *Alpha) ConvertTo(hub conversion.Hub) error {
	j := hub.(*Job)
	j.ObjectMeta = a.ObjectMeta
	schedule, _, _ := strings.Cut(a.Spec.Schedule, " # ")
	minute, hour, _ := strings.Cut(schedule, " ")
	j.Spec.Schedule = JobSchedule{Minute: minute, Hour: hour}
	if a.Spec.Suspend != nil {
		j.Spec.Suspend = *a.Spec.Suspend
	}
	j.Spec.Limit, j.Spec.Template = a.Spec.Limit, a.Spec.Template
	for _, s := range a.Spec.Steps {
		if !s.Local {
			j.Spec.Steps = append(j.Spec.Steps, JobStep{Name: s.Name, Image: s.Image})
		}
	}
	for _, r := range a.Spec.Rules {
		j.Spec.Rules = append(j.Spec.Rules, JobRule{Match: r.Match, Weight: r.Weight})
	}
	return nil
}

func (a *Alpha) ConvertFrom(hub conversion.Hub) error {
	j := hub.(*Job)
	a.ObjectMeta = j.ObjectMeta
	a.Spec.Schedule = strings.TrimSuffix(j.Spec.Schedule.Minute+" "+j.Spec.Schedule.Hour, " ")
	if j.Spec.Suspend {
		a.Spec.Suspend = &j.Spec.Suspend
	}
	a.Spec.Limit, a.Spec.Template = j.Spec.Limit, j.Spec.Template
	for _, s := range j.Spec.Steps {
		a.Spec.Steps = append(a.Spec.Steps, AlphaStep{Name: s.Name, Image: s.Image})
	}
	for _, r := range j.Spec.Rules {
		a.Spec.Rules = append(a.Spec.Rules, AlphaRule{Match: r.Match, Weight: r.Weight})
	}
	return nil
}

func alphaToHub(_ context.Context, o runtime.Object) (runtime.Object, error) {
	j := &Job{}
	return j, o.(*Alpha).ConvertTo(j)
}

func alphaFromHub(_ context.Context, o runtime.Object) (runtime.Object, error) {
	a := &Alpha{}
	return a, a.ConvertFrom(o.(*Job))
}

// betaToHub renames spec.when to spec.schedule. v1 lacks spec.color.
func betaToHub(_ context.Context, o runtime.Object) (runtime.Object, error) {
	tree := o.(*unstructured.Unstructured).Object
	if spec, ok := tree["spec"].(map[string]any); ok {
		spec["schedule"] = spec["when"]
		delete(spec, "when")
		delete(spec, "color")
	}
	j := &Job{}
	return j, runtime.DefaultUnstructuredConverter.FromUnstructured(tree, j)
}

func betaFromHub(_ context.Context, o runtime.Object) (runtime.Object, error) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	if spec, ok := tree["spec"].(map[string]any); ok {
		spec["when"] = spec["schedule"]
		delete(spec, "schedule")
	}
	return &unstructured.Unstructured{Object: tree}, nil
}

// cronJobs returns the kind with all its versions.
func cronJobs() *convert.Kind {
	return &convert.Kind{Group: group, Kind: "CronJob", Keys: keysOf("a key"), Versions: []convert.Version{
		{Name: "v1alpha1", Type: reflect.TypeFor[*Alpha](), ToHub: alphaToHub, FromHub: alphaFromHub},
		{Name: "v1beta1", ToHub: betaToHub, FromHub: betaFromHub},
		{Name: "v1", Type: reflect.TypeFor[*Job]()},
	}}
}

// trees returns a kind without Go types. toHub and fromHub change the tree of a v1alpha1.
func trees(toHub, fromHub func(map[string]any)) *convert.Kind {
	change := func(f func(map[string]any)) convert.Func {
		return func(_ context.Context, o runtime.Object) (runtime.Object, error) {
			f(o.(*unstructured.Unstructured).Object)
			return o, nil
		}
	}
	return &convert.Kind{Group: group, Kind: "CronJob", Keys: keysOf("a key"), Versions: []convert.Version{
		{Name: "v1alpha1", ToHub: change(toHub), FromHub: change(fromHub)}, {Name: "v1"},
	}}
}

func unchanged(map[string]any) {}

// with replaces the functions of v1alpha1.
func with(k *convert.Kind, toHub, fromHub convert.Func) *convert.Kind {
	if toHub != nil {
		k.Versions[0].ToHub = toHub
	}
	if fromHub != nil {
		k.Versions[0].FromHub = fromHub
	}
	return k
}

// review returns a ConversionReview of objects in JSON.
func review(to string, objects ...string) []byte {
	return fmt.Appendf(nil, `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u-1","desiredAPIVersion":%q,"objects":[%s]}}`,
		group+"/"+to, strings.Join(objects, ","))
}

// answered returns the response of an answer, whose frame is checked.
func answered(k *convert.Kind, body []byte) *apiextensionsv1.ConversionResponse {
	GinkgoHelper()
	answer, err := k.Answer(context.Background(), body, nil)
	Expect(err).NotTo(HaveOccurred())
	var rev apiextensionsv1.ConversionReview
	Expect(json.Unmarshal(answer, &rev)).To(Succeed(), "%s", answer)
	Expect(rev.Kind).To(Equal("ConversionReview"))
	Expect(rev.APIVersion).To(Equal("apiextensions.k8s.io/v1"))
	Expect(rev.Request).To(BeNil())
	Expect(rev.Response.UID).To(Equal(types.UID("u-1")))
	return rev.Response
}

// converted returns one converted object.
func converted(k *convert.Kind, to, object string) string {
	GinkgoHelper()
	r := answered(k, review(to, object))
	Expect(r.Result.Status).To(Equal(metav1.StatusSuccess), r.Result.Message)
	Expect(r.ConvertedObjects).To(HaveLen(1))
	return string(r.ConvertedObjects[0].Raw)
}

// failure returns the message of an answer that failed.
func failure(k *convert.Kind, body []byte) string {
	GinkgoHelper()
	r := answered(k, body)
	Expect(r.Result.Status).To(Equal(metav1.StatusFailure))
	Expect(r.ConvertedObjects).To(BeEmpty())
	return r.Result.Message
}

// object returns an object in JSON. metadata and spec are the insides of their objects.
func object(version, metadata, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/%s","kind":"CronJob","metadata":{"name":"nightly","namespace":"cf"%s},"spec":{%s}}`, group, version, metadata, spec)
}

// notesOf returns the annotations of an object, by their names.
func notesOf(object string) map[string]string {
	GinkgoHelper()
	var o metav1.PartialObjectMetadata
	Expect(json.Unmarshal([]byte(object), &o)).To(Succeed())
	maps.DeleteFunc(o.Annotations, func(name, _ string) bool { return !strings.HasPrefix(name, convert.Prefix) })
	return o.Annotations
}

// noteOf returns what the annotations of an object hold, as a list of entries for each version; empty if there is none. The
// place of a digest is shown alone.
func noteOf(object string) string {
	GinkgoHelper()
	all := map[string][]map[string]any{}
	notes := notesOf(object)
	for _, name := range slices.Sorted(maps.Keys(notes)) {
		parts := strings.SplitN(notes[name], ".", 3)
		Expect(parts).To(HaveLen(3))
		var entry map[string]any
		dec := json.NewDecoder(strings.NewReader(parts[2]))
		dec.UseNumber()
		Expect(dec.Decode(&entry)).To(Succeed())
		version := entry["version"].(string)
		delete(entry, "version")
		path := entry["path"].([]any)
		for i, step := range path {
			if path[i] = step.(string)[1:]; step.(string)[0] == '[' {
				path[i] = []any{path[i]}
			}
		}
		if entry["base"] != nil {
			entry["base"] = "#"
		}
		all[version] = append(all[version], entry)
	}
	if len(all) == 0 {
		return ""
	}
	for _, entries := range all {
		slices.SortFunc(entries, func(a, b map[string]any) int {
			return strings.Compare(digests.ReplaceAllString(fmt.Sprint(a["path"], a["value"]), "#"), digests.ReplaceAllString(fmt.Sprint(b["path"], b["value"]), "#"))
		})
	}
	text, err := json.Marshal(all)
	Expect(err).NotTo(HaveOccurred())
	return digests.ReplaceAllString(string(text), "#")
}

var digests = regexp.MustCompile(`#[\w-]{16}`)

// annotations returns the member of the metadata that holds annotations.
func annotations(of map[string]string) string {
	text, err := json.Marshal(of)
	Expect(err).NotTo(HaveOccurred())
	return `,"annotations":` + string(text)
}

// keysOf returns keys that are made of texts.
func keysOf(texts ...string) *convert.Keys {
	k := &convert.Keys{}
	for _, text := range texts {
		k.Learn(keyOf(text))
	}
	return k
}

// keyOf returns a key of 32 bytes, because FIPS 140 refuses short ones.
func keyOf(text string) []byte { return fmt.Appendf(nil, "%-32s", text) }

// counter is an Observer of one answer at a time.
type counter struct {
	converted map[string]int
	failed    []string
	panics    []any
	ignored   []string
	shed      []string
}

func (c *counter) Converted(from, to string) {
	if c.converted == nil {
		c.converted = map[string]int{}
	}
	c.converted[from+">"+to]++
}

func (c *counter) Failed(_, _ string, err error) {
	c.failed = append(c.failed, err.Error())
}

func (c *counter) Panicked(_, _ string, value any, _ []byte) {
	c.panics = append(c.panics, value)
}

func (c *counter) Ignored(_, _ string, reason error) {
	c.ignored = append(c.ignored, reason.Error())
}

func (c *counter) Incomplete(_, _ string, reason error) {
	c.shed = append(c.shed, reason.Error())
}

func TestConvert(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Convert")
}

var errBroken = errors.New("broken on purpose")

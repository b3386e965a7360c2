package convert_test

// This file specifies that random objects come back as they were, that an audit finds what is lost, and that any bytes have an answer.

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"code.cloudfoundry.org/eirinix/internal/convert"
)

// chance makes random objects.
type chance struct {
	*rand.Rand
	unknown bool // with members that no type knows
}

func (c chance) often() bool { return c.IntN(3) > 0 }

func (c chance) word() string {
	words := []string{"", "a", "b", "5", "5 4", "é\n\"<", "\u2028", strings.Repeat("long ", 9), "name", "default", "0", "null"}
	return words[c.IntN(len(words))]
}

func (c chance) words() (all []string) {
	for range c.IntN(3) {
		all = append(all, c.word())
	}
	return all
}

func (c chance) labels() map[string]string {
	if c.often() {
		return nil
	}
	m := map[string]string{}
	for range c.IntN(4) {
		m["k"+c.word()] = c.word()
	}
	return m
}

func (c chance) meta() metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: "n" + c.word(), Namespace: c.word(), Labels: c.labels(), Annotations: c.labels()}
	if c.often() {
		m.CreationTimestamp = metav1.Unix(c.Int64N(1<<31), 0)
		m.Finalizers = c.words()
	}
	if c.often() {
		m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: c.word(), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}}
	}
	return m
}

func (c chance) template() *corev1.PodSpec {
	if c.often() {
		return nil
	}
	t := &corev1.PodSpec{NodeSelector: c.labels()}
	for i := range c.IntN(3) {
		t.Containers = append(t.Containers, corev1.Container{Name: fmt.Sprint("c", i), Args: c.words(), Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"cpu": resource.MustParse("500m")},
		}})
	}
	return t
}

func (c chance) alpha() any {
	a := &Alpha{TypeMeta: metav1.TypeMeta{APIVersion: group + "/v1alpha1", Kind: "CronJob"}, ObjectMeta: c.meta()}
	a.Spec = AlphaSpec{Schedule: c.word() + " " + c.word(), Limit: c.Int64() - c.Int64(), Template: c.template()}
	if c.often() {
		a.Spec.Schedule += " # " + c.word()
	}
	if c.often() {
		yes := c.often()
		a.Spec.Suspend = &yes
	}
	if !c.often() {
		a.Spec.Owner = &AlphaOwner{Team: c.word(), Mails: c.words()}
	}
	for i := range c.IntN(5) {
		step := AlphaStep{Name: fmt.Sprint(c.word(), i), Image: c.word(), Local: !c.often()}
		if !c.often() {
			step.Note = c.word()
		}
		if c.IntN(20) == 0 {
			step.Name = "same"
		}
		a.Spec.Steps = append(a.Spec.Steps, step)
	}
	for range c.IntN(4) {
		rule := AlphaRule{Match: c.word(), Weight: c.Int64N(3)}
		if !c.often() {
			rule.Note = c.word()
		}
		a.Spec.Rules = append(a.Spec.Rules, rule)
	}
	return a
}

func (c chance) job() any {
	j := &Job{TypeMeta: metav1.TypeMeta{APIVersion: group + "/v1", Kind: "CronJob"}, ObjectMeta: c.meta()}
	j.Spec = JobSpec{Schedule: JobSchedule{c.word(), c.word()}, Suspend: c.often(), Limit: c.Int64N(9), Template: c.template()}
	if c.often() {
		zone := c.word()
		j.Spec.TimeZone = &zone
	}
	for i := range c.IntN(3) {
		j.Spec.Steps = append(j.Spec.Steps, JobStep{Name: fmt.Sprint("s", i), Image: c.word()})
		j.Spec.Rules = append(j.Spec.Rules, JobRule{Match: c.word(), Weight: c.Int64N(3)})
	}
	return j
}

// text writes an object, with members that no type knows at random places.
func (c chance) text(o any) string {
	text, err := json.Marshal(o)
	Expect(err).NotTo(HaveOccurred())
	var tree map[string]any
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.UseNumber()
	Expect(dec.Decode(&tree)).To(Succeed())
	if c.unknown && c.often() {
		c.scatter(tree["spec"])
		c.scatter(tree["metadata"])
	}
	text, err = json.Marshal(tree)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

func (c chance) scatter(v any) {
	unknown := []any{json.Number("1e3"), json.Number("9007199254740993"), "text", true, []any{json.Number("0.10")}, map[string]any{"a": []any{}}}
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			if name != "labels" && name != "annotations" && name != "nodeSelector" && name != "limits" && name != "managedFields" {
				c.scatter(inner)
			}
		}
		if c.IntN(8) == 0 {
			v["x-"+c.word()] = unknown[c.IntN(len(unknown))]
		}
	case []any:
		for _, inner := range v {
			c.scatter(inner)
		}
	}
}

// there converts a list of objects.
func there(k *convert.Kind, to string, objects []string) []string {
	GinkgoHelper()
	r := answered(k, review(to, objects...))
	Expect(r.Result.Message).To(BeEmpty())
	Expect(r.ConvertedObjects).To(HaveLen(len(objects)))
	all := make([]string, len(objects))
	for i := range all {
		all[i] = string(r.ConvertedObjects[i].Raw)
	}
	return all
}

// comparableTree decodes an object with its numbers as they are written.
func comparableTree(text string) (v any) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	Expect(dec.Decode(&v)).To(Succeed())
	return v
}

var _ = DescribeTable("A random object comes back as it was",
	func(make func(chance) any, unknown bool, from string, way ...string) {
		seed := uint64(GinkgoRandomSeed())
		c := chance{rand.New(rand.NewPCG(seed, 7)), unknown}
		k, counts := quietly(cronJobs())
		noted, sent := 0, 0
		for ; sent < 200 || noted == sent*len(way) && sent < 5000; sent += 100 { // until one has lost nothing
			var objects []string
			for range 100 {
				objects = append(objects, c.text(make(c)))
			}
			at := objects
			for _, version := range way {
				at = there(k, version, at)
				for _, o := range at {
					if noteOf(o) != "" {
						noted++
					}
				}
			}
			at = there(k, from, at)
			for i := range at {
				if at[i] != objects[i] {
					Expect(comparableTree(at[i])).To(Equal(comparableTree(objects[i])), "seed %d", seed)
				}
			}
		}
		Expect(counts.ignored).To(BeEmpty(), "seed %d", seed)
		Expect(noted).To(And(BeNumerically(">", 10), BeNumerically("<", sent*len(way))))
	},
	Entry("from a spoke to the hub", chance.alpha, true, "v1alpha1", "v1"),
	Entry("from the hub to a spoke", chance.job, true, "v1", "v1alpha1"),
	Entry("from a spoke to another", chance.alpha, true, "v1alpha1", "v1beta1"),
	Entry("from a spoke to another by the hub", chance.alpha, true, "v1alpha1", "v1", "v1beta1"),
	// A conversion that makes a Go type of a tree drops the members that the type does not know.
	Entry("from the hub by both", chance.job, false, "v1", "v1alpha1", "v1beta1"),
)

// FuzzAnswer answers any bytes, as one review and as the annotation and the spec of an object. The uid is always that of
// the request, and each object has its answer.
func FuzzAnswer(f *testing.F) {
	for _, body := range [][]byte{
		review("v1"), review("v1", object("v1alpha1", "", `"schedule":"5 # x","owner":{"team":"t"}`)), review("v1alpha1", "null", "7"),
		review("v1beta1", object("v1", `,"annotations":{"`+convert.Prefix+`a":"b.c.{\"version\":\"v1beta1\"}"}`, `"schedule":{"minute":"5"}`)),
		review("v1", object("v1alpha1", `,"labels":{"a":"b"}`, `"schedule":"1","rules":[{"match":"a","note":"n"}],"steps":[{"name":"a","local":true},{"name":"b"}]`)),
		[]byte(`{"v1alpha1":[{"path":["spec","steps",["a"]],"value":{"name":"a","local":true},"after":"b"}]}`),
		[]byte(`{"v1alpha1":[{"path":["spec","rules"],"value":{"match":"b","note":"n"},"base":{"match":"b"},"item":true}]}`),
		[]byte(`"schedule":"5 4","x":{"y":[1e3,-0]},"steps":[{"name":"a","x":1}]`),
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<14 {
			t.Skip("long texts only repeat themselves")
		}
		note, err := json.Marshal(string(text))
		if err != nil {
			t.Fatal(err)
		}
		noted := object("v1", `,"annotations":{"`+convert.Prefix+`a":`+string(note)+`}`, `"schedule":{"minute":"5"},"suspend":false,"steps":[{"name":"b"}],"rules":[{"match":"b"}]`)
		for _, body := range [][]byte{
			text, review("v1", object("v1alpha1", "", string(text))), review("v1alpha1", noted), review("v1beta1", noted),
			review("v1", strings.Replace(object("v1beta1", "", string(text)), `"spec"`, `"x":[`+string(text)+`],"spec"`, 1)),
		} {
			checkAnswer(t, body)
		}
	})
}

func checkAnswer(t *testing.T, body []byte) {
	answer, err := cronJobs().Answer(context.Background(), body, nil)
	if err != nil {
		if answer != nil {
			t.Fatalf("%q: an answer and an error", body)
		}
		return
	}
	var asked struct {
		Request struct {
			UID     string            `json:"uid"`
			Desired string            `json:"desiredAPIVersion"`
			Objects []json.RawMessage `json:"objects"`
		} `json:"request"`
	}
	var got struct {
		Response struct {
			UID     string            `json:"uid"`
			Objects []json.RawMessage `json:"convertedObjects"`
			Result  struct {
				Status, Message string
			} `json:"result"`
		} `json:"response"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &asked); err != nil {
		t.Fatalf("%q is no review, but is answered: %v", body, err)
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		t.Fatalf("%q is answered with %q: %v", body, answer, err)
	}
	switch r := got.Response; {
	case r.UID != asked.Request.UID:
		t.Fatalf("%q has the uid %q, and its answer %q", body, asked.Request.UID, r.UID)
	case r.Result.Status == "Failure":
		if r.Result.Message == "" || len(r.Objects) > 0 {
			t.Fatalf("%q fails with %q", body, answer)
		}
	case len(r.Objects) != len(asked.Request.Objects):
		t.Fatalf("%q holds %d objects, and its answer %d", body, len(asked.Request.Objects), len(r.Objects))
	default:
		for _, raw := range r.Objects {
			var o struct {
				APIVersion string `json:"apiVersion"`
			}
			if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &o); err != nil || o.APIVersion != asked.Request.Desired {
				t.Fatalf("%q is answered with %q: %v", body, answer, err)
			}
		}
	}
}

var _ = Describe("A round trip for an audit", func() {
	DescribeTable("loses something of a random object if the webhook keeps something, and no more often", func(make func(chance) any, from, to string) {
		seed := uint64(GinkgoRandomSeed())
		c := chance{rand.New(rand.NewPCG(seed, 8)), true}
		k, _ := quietly(cronJobs())
		count := map[bool]int{}
		for range 200 {
			object := c.text(make(c))
			lost, noRoom, err := k.RoundTrip(context.Background(), []byte(object), from, to)
			Expect(err).NotTo(HaveOccurred(), "seed %d: %s", seed, object)
			kept := len(notesOf(converted(k, to, object))) > 0
			Expect(len(lost) > 0).To(Equal(kept), "seed %d: %s: %q", seed, object, lost)
			Expect(noRoom).To(BeFalse())
			count[kept]++
		}
		Expect(count).To(And(HaveKeyWithValue(true, BeNumerically(">", 0)), HaveKeyWithValue(false, BeNumerically(">", 0))))
	},
		Entry("of a spoke", chance.alpha, "v1alpha1", "v1"),
		Entry("of the hub", chance.job, "v1", "v1alpha1"),
	)

	DescribeTable("names the places", func(from, to, spec string, expected ...string) {
		lost, noRoom, err := cronJobs().RoundTrip(context.Background(), []byte(object(from, "", spec)), from, to)
		Expect(err).NotTo(HaveOccurred())
		Expect(noRoom).To(BeFalse())
		Expect(lost).To(Equal(append([]string(nil), expected...)))
	},
		Entry("of the hub", "v1", "v1alpha1", `"schedule":{"minute":"5","hour":"4"},"suspend":true,"timeZone":"UTC"`, "/spec/timeZone"),
		Entry("in items with names, once", "v1alpha1", "v1", `"schedule":"5 4","steps":[{"name":"a","note":"x"},{"name":"b","note":"y"}]`, "/spec/steps/*/note"),
		Entry("in items without names", "v1alpha1", "v1", `"schedule":"5 4","rules":[{"match":"a","note":"x"},{"match":"b"}]`, "/spec/rules/*/note"),
		Entry("of an item", "v1alpha1", "v1", `"schedule":"5 4","steps":[{"name":"a","local":true},{"name":"b"}]`, "/spec/steps/*"),
	)

	It("has no room for what annotations cannot hold", func() {
		k := trees(func(o map[string]any) { delete(o, "spec") }, unchanged)
		text := []byte(object("v1alpha1", "", `"a/~b":"`+strings.Repeat("x", 300<<10)+`"`))
		lost, noRoom, err := k.RoundTrip(context.Background(), text, "v1alpha1", "v1")
		Expect(err).NotTo(HaveOccurred())
		Expect(lost).To(Equal([]string{"/spec"}))
		Expect(noRoom).To(BeTrue())
		Expect(converted(k, "v1", string(text))).To(ContainSubstring(convert.Incomplete))
	})

	DescribeTable("survives a panic", func(k *convert.Kind, message string) {
		_, _, err := k.RoundTrip(context.Background(), []byte(object("v1alpha1", "", "")), "v1alpha1", "v1")
		Expect(err).To(MatchError(message))
	},
		Entry("of a function", trees(func(map[string]any) { panic("boom") }, unchanged), "to v1: the conversion panicked: boom"),
		Entry("of a type", &convert.Kind{Group: group, Versions: []convert.Version{
			{Name: "v1alpha1", Type: reflect.TypeFor[*explosive](), ToHub: alphaToHub}, {Name: "v1"},
		}}, "the conversion panicked: boom"),
	)
})

// explosive is an object that cannot be read.
type explosive struct{ Alpha }

func (*explosive) UnmarshalJSON([]byte) error { panic("boom") }

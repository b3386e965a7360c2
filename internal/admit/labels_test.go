package admit

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	web         = `{"kind":"Pod","metadata":{"name":"a","labels":{"app":"web","tier":""}},"spec":{}}`
	unlabelled  = `{"kind":"Pod","metadata":{"name":"a"}}`
	execOptions = `{"kind":"PodExecOptions","apiVersion":"v1","stdin":true,"command":["sh","-c","{}"]}`
)

var _ = Describe("An objectSelector", func() {
	isWeb := where("app", "In", "web")
	DescribeTable("selects by the labels of either object:",
		func(selector *metav1.LabelSelector, object, oldObject string, expected bool) {
			req := asked("UPDATE core/v1/pods cf")
			req.Object.Raw, req.OldObject.Raw = []byte(object), []byte(oldObject)
			Expect(matcher(rules("* * * */*"), selector, nil).matches(req)).To(Equal(expected))
		},
		Entry("none", nil, execOptions, "", true),
		Entry("an empty one", &metav1.LabelSelector{}, "", "", true),
		Entry("the object has it", isWeb, web, "", true),
		Entry("the object does not", isWeb, unlabelled, "", false),
		Entry("the old object has it", isWeb, unlabelled, web, true),
		Entry("only the old object is there, and has it", isWeb, "", web, true),
		Entry("only the old object is there, and null for the new one", isWeb, "null", web, true),
		Entry("none is there", isWeb, "", "", false),
		Entry("none is there, not even for a label's absence", where("app", "DoesNotExist"), "", "null", false),
		Entry("all must be met by the same object", both(where("app", "In", "web"), where("old", "Exists")), web, `{"metadata":{"labels":{"old":""}}}`, false),
		Entry("another value", where("app", "In", "db", "weblog", "we"), web, "", false),
		Entry("matchLabels", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "tier": ""}}, web, "", true),
		Entry("matchLabels, not all", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "tier": "x"}}, web, "", false),
		Entry("an empty value", where("tier", "Exists"), web, "", true),
		Entry("no such label", where("old", "Exists"), web, "", false),
		Entry("a label that must not be", where("app", "DoesNotExist"), web, "", false),
		Entry("a label that is not", where("old", "DoesNotExist"), web, "", true),
		Entry("an excluded value", where("app", "NotIn", "web"), web, "", false),
		Entry("a value that is not excluded", where("app", "NotIn", "db"), web, "", true),
		Entry("no value is not an empty one", where("app", "In", "", "web"), unlabelled, "", false),
		Entry("no empty value to be excluded", where("app", "NotIn", ""), unlabelled, "", true),
		Entry("no value to be excluded", where("app", "NotIn", "web"), unlabelled, "", true),
		Entry("no metadata and so no labels", where("app", "DoesNotExist"), execOptions, "", false),
		Entry("metadata of null", where("app", "DoesNotExist"), `{"metadata":null}`, "", true),
		Entry("labels of null", where("app", "DoesNotExist"), `{"metadata":{"labels":null}}`, "", true),
		Entry("metadata elsewhere", isWeb, `{"spec":{"template":{"metadata":{"labels":{"app":"web"}}}},"metadata":{}}`, "", false),
		Entry("labels elsewhere", isWeb, `{"labels":{"app":"web"},"metadata":{"annotations":{"labels":"{}"}}}`, "", false),
		Entry("spelt with an escape", isWeb, `{"metadata":{"labels":{"\u0061pp":"w\u0065b"}}}`, "", true),
		Entry("spelt with an escape, another value", isWeb, `{"metadata":{"labels":{"\u0061pp":"w\u0065bs"}}}`, "", false),
		Entry("the members' names too", isWeb, `{"m\u0065tadata":{"labels":{"app":"web"}}}`, "", true),
		Entry("an escape, and no metadata", where("app", "DoesNotExist"), `{"a\u0062":1}`, "", false),
		Entry("an escape, and metadata of null", where("app", "DoesNotExist"), `{"a\u0062":1,"metadata":null}`, "", true),
		Entry("a value of null", where("app", "In", ""), `{"metadata":{"labels":{"app":null}}}`, "", true),
		Entry("the last of two labels counts", isWeb, `{"metadata":{"labels":{"app":"db","app":"web"}}}`, "", true),
		Entry("labels that nobody can read are for the step's decoder", isWeb, `{"metadata":{"labels":{"app":1}}}`, "", true),
		Entry("what is no object is for the step's decoder", isWeb, `"text"`, "", true),
		Entry("and so is a syntax error", isWeb, `{"metadata":{"labels":{"app":"w`, "", true),
	)

	It("reads no further than the labels", func() {
		got, ok := readLabels([]byte(`{"metadata":{"name":"a","labels":{"app":"web"},`))
		Expect(ok).To(BeTrue())
		Expect(got).To(Equal(map[string]string{"app": "web"}))
	})

	DescribeTable("has labels read without decoding the object:",
		func(raw string, expected map[string]string, plain bool) {
			got, ok := readLabels([]byte(raw))
			Expect(ok).To(Equal(plain))
			Expect(got).To(Equal(expected))
		},
		Entry("some", web, map[string]string{"app": "web", "tier": ""}, true),
		Entry("with space between", " {\n\t\"metadata\" : { \"labels\" : { \"a\" : \"b\" } } }", map[string]string{"a": "b"}, true),
		Entry("beyond ASCII", `{"metadata":{"labels":{"é":"日本"}}}`, map[string]string{"é": "日本"}, true),
		Entry("an empty map", `{"metadata":{"labels":{}}}`, map[string]string{}, true),
		Entry("none", unlabelled, nil, true),
		Entry("null", `{"metadata":{"labels":null}}`, nil, true),
		Entry("no metadata", execOptions, nil, true),
		Entry("a number", `{"metadata":{"labels":{"a":1}}}`, nil, false),
		Entry("null for a value", `{"metadata":{"labels":{"a":null}}}`, nil, false),
		Entry("a list", `{"metadata":{"labels":[]}}`, nil, false),
		Entry("an escape", `{"metadata":{"labels":{"a":"\n"}}}`, nil, false),
		Entry("bytes that are no text", "{\"metadata\":{\"labels\":{\"a\":\"\xff\"}}}", nil, false),
		Entry("a list for metadata", `{"metadata":[]}`, nil, false),
		Entry("no object", `1`, nil, false),
		Entry("nothing", ``, nil, false),
	)
})

// FuzzLabels holds the reader of labels against the decoder, and the selection against apimachinery's.
func FuzzLabels(f *testing.F) {
	for _, seed := range []string{
		web, unlabelled, execOptions, "", "null", "[]", `{"metadata":{"labels":{"app":"db","app":"web"}}}`, `{"metadata":{"labels":null}}`,
		`{"metadata":{"labels":{"\u0061pp":"web"}}}`, "{\"metadata\":{\"labels\":{\"app\":\"\xff\"}}}", `{"metadata":null}`,
	} {
		f.Add([]byte(seed), "app", "web", uint8(0))
	}
	operators := []metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist"}
	f.Fuzz(func(t *testing.T, raw []byte, key, value string, operator uint8) {
		want, metadata, readable := decodeLabels(raw)
		if !json.Valid(raw) || twice(raw) {
			return
		}
		if got, ok := readLabels(raw); ok && readable && !labels.Equals(got, want) {
			t.Fatalf("%q: %q rather than %q", raw, got, want)
		}
		s := where(key, operators[int(operator)%len(operators)])
		if operator%4 < 2 {
			s.MatchExpressions[0].Values = []string{value}
		}
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil || !readable {
			return
		}
		m, err := NewMatcher(nil, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, expected := m.matchesObjects(raw, nil), metadata && selector.Matches(labels.Set(want)); got != expected {
			t.Fatalf("%q in %q: %t", selector, raw, got)
		}
	})
}

// twice tells whether metadata or labels may stand there more than once, which the reader does not see.
func twice(raw []byte) bool {
	count := 0
	c := cursor{text: raw}
	for more := c.enter('{'); more; more = c.more('{') {
		if string(c.name()) == "metadata" {
			count++
			for more := c.enter('{'); more; more = c.more('{') {
				if string(c.name()) == "labels" {
					count += 10
				}
				c.value()
			}
			continue
		}
		c.value()
	}
	return c.odd || count%10 > 1 || count > 11
}

func BenchmarkLabels(b *testing.B) {
	raw := arrivedPod(3, 23)
	b.Run("scanned", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := readLabels(raw); !ok {
				b.Fatal("not plain")
			}
		}
	})
	b.Run("decoded", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, ok := decodeLabels(raw); !ok {
				b.Fatal("not readable")
			}
		}
	})
}

// readLabels reads all labels as a selection reads one. It is not ok where that is left to the decoder.
func readLabels(raw []byte) (labels map[string]string, ok bool) {
	text, _, ok := findLabels(raw)
	if !ok || text == nil {
		return nil, ok
	}
	labels = map[string]string{}
	c := cursor{text: text}
	for more := c.enter('{'); more; more = c.more('{') {
		name := string(c.name())
		value, has, ok := text.value(name)
		if !has || !ok {
			return nil, false
		}
		labels[name] = string(value)
		c.value()
	}
	return labels, !c.odd
}

var _ = Describe("Labels that take much memory", func() {
	It("are not read; the step's own decoder refuses the object", func() {
		var text strings.Builder
		text.WriteString(`{"metadata":{"labels":{`)
		for i := range 500_000 {
			fmt.Fprintf(&text, `"%d":"",`, i)
		}
		text.WriteString(`"\u0061":"b"}}}`)
		_, _, ok := decodeLabels([]byte(text.String()))
		Expect(ok).To(BeFalse())
		req := asked("CREATE core/v1/pods cf")
		req.Object.Raw = []byte(text.String())
		Expect(matcher(rules("* * * */*"), where("app", "In", "web"), nil).matches(req)).To(BeTrue())
	})
})

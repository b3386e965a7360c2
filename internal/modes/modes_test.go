package modes

// This file specifies which mode the entries of a ConfigMap give a step for an object.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/chain"
)

func TestModes(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "internal/modes")
}

var version int

// from returns a ConfigMap with entries, as a new version.
func from(entries ...string) *corev1.ConfigMap {
	version++
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: fmt.Sprint(version)}, Data: map[string]string{}}
	for i := 0; i < len(entries); i += 2 {
		m.Data[entries[i]] = entries[i+1]
	}
	return m
}

func request(namespace, name string, change ...func(*metav1.ObjectMeta)) *admissionv1.AdmissionRequest {
	GinkgoHelper()
	object := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	for _, c := range change {
		c(&object.ObjectMeta)
	}
	raw, err := json.Marshal(object)
	Expect(err).NotTo(HaveOccurred())
	return &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: namespace, Name: object.Name, Object: runtime.RawExtension{Raw: raw},
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
	}
}

var _ = Describe("The modes of steps", func() {
	var (
		m    *Modes
		logs []string
	)
	BeforeEach(func() {
		m, logs = New([]Step{{Name: "owner"}, {Name: "stage", Mode: chain.ModeShadow}, {Name: "fixed", Fixed: true}}), nil
		m.ConfigMap, m.Log = "eirini/modes", funcr.New(func(_, args string) { logs = append(logs, args) }, funcr.Options{})
		m.Labels = func(_ context.Context, name string) (labels.Set, error) {
			if name == "gone" {
				return nil, errors.New("forbidden")
			}
			return labels.Set{"team": name, corev1.LabelMetadataName: name}, nil
		}
	})
	mode := func(step string, req *admissionv1.AdmissionRequest) chain.Mode {
		GinkgoHelper()
		chosen, err := m.Choose(context.Background(), step, req)
		Expect(err).NotTo(HaveOccurred())
		return chosen
	}

	It("are the program's own without an entry, and those of the first line that fits otherwise", func() {
		Expect(mode("owner", request("a", "x"))).To(Equal(chain.ModeDeny))
		m.Set(from("owner", "# two teams first\nDeny where team in (a, b)\n\nWARN 0%\naudit where kubernetes.io/metadata.name=c\nShadow"))
		Expect(logs).To(HaveLen(1))
		for namespace, expected := range map[string]chain.Mode{"a": chain.ModeDeny, "b": chain.ModeDeny, "c": chain.ModeAudit, "d": chain.ModeShadow, "": chain.ModeShadow} {
			Expect(mode("owner", request(namespace, "x"))).To(Equal(expected), namespace)
		}
		m.Set(from("owner", "Warn where team=a"))
		Expect(mode("owner", request("d", "x"))).To(Equal(chain.ModeDeny), "the program's own where no line fits")
		m.Set(nil)
		Expect(mode("owner", request("a", "x"))).To(Equal(chain.ModeDeny))
	})

	It("select a Namespace by its own labels", func() {
		m.Set(from("owner", "Warn where team=new\nAudit"))
		req := request("", "some", func(o *metav1.ObjectMeta) { o.Labels = map[string]string{"team": "new"} })
		req.Resource.Resource = "namespaces"
		Expect(mode("owner", req)).To(Equal(chain.ModeWarn))
	})

	It("fail where they depend on labels that cannot be read, and only there", func() {
		m.Set(from("owner", "Warn where team=x\nAudit", "stage", "Warn where kubernetes.io/metadata.name=gone"))
		_, err := m.Choose(context.Background(), "owner", request("gone", "x"))
		Expect(err).To(MatchError(ContainSubstring("grant get, list and watch on namespaces: forbidden")))
		Expect(mode("stage", request("gone", "x"))).To(Equal(chain.ModeWarn))
	})

	It("hold for a percentage of objects, the same ones at any time and in any process", func() {
		requests := map[string]*admissionv1.AdmissionRequest{}
		for i := range 2000 {
			name := fmt.Sprintf("pod-%d", i)
			requests[name] = request("a", name)
		}
		count := func(entry string) (in int, chosen map[string]chain.Mode) {
			m.Set(from("owner", entry))
			chosen = map[string]chain.Mode{}
			for name, r := range requests {
				var err error
				if chosen[name], err = m.Choose(context.Background(), "owner", r); err != nil {
					Fail(err.Error())
				}
				if chosen[name] == chain.ModeDeny {
					in++
				}
			}
			return in, chosen
		}
		ten, first := count("Deny 10%\nAudit")
		Expect(ten).To(BeNumerically("~", 200, 60))
		thirty, second := count("Deny 30%\nAudit")
		Expect(thirty).To(BeNumerically("~", 600, 90))
		for name, was := range first {
			if was == chain.ModeDeny && second[name] != was {
				Fail("a higher percentage keeps those of a lower one, but not " + name)
			}
		}
		_, both := count("Deny 10%\nWarn 50%\nAudit")
		of := map[chain.Mode]int{}
		for name, chosen := range both {
			of[chosen]++
			if (chosen == chain.ModeDeny) != (first[name] == chain.ModeDeny) {
				Fail("the same number serves all lines, but not for " + name)
			}
		}
		Expect(of).To(And(HaveKeyWithValue(chain.ModeWarn, BeNumerically("~", 800, 90)), HaveKeyWithValue(chain.ModeAudit, BeNumerically("~", 1000, 90))))
		none, _ := count("Deny 0%\nAudit")
		all, _ := count("Deny 100%")
		Expect([]int{none, all}).To(Equal([]int{0, 2000}))
		Expect(draw("owner", "a/x")).To(BeNumerically("~", 26.305, 0.001), "every process draws this number")
	})

	DescribeTable("keep the last good entry, and log the line of a bad one once",
		func(entry, problem string) {
			m.Set(from("owner", "Warn", "stage", "Audit"))
			logs = nil
			bad := from("owner", entry, "stage", "Deny")
			m.Set(bad)
			m.Set(bad)
			Expect(mode("owner", request("a", "x"))).To(Equal(chain.ModeWarn))
			Expect(mode("stage", request("a", "x"))).To(Equal(chain.ModeDeny), "the good entry beside it")
			Expect(logs).To(ConsistOf(And(ContainSubstring("owner"), ContainSubstring(strings.ReplaceAll(problem, `"`, `\"`))), ContainSubstring("stage")))
			entries, problems := m.Describe()
			Expect(entries).To(Equal([]string{"owner: Warn", "stage: Deny"}))
			Expect(problems).To(ConsistOf(And(HavePrefix("owner: "+problem), HaveSuffix(`the last good entry applies: "Warn"`))))
		},
		Entry("an unknown mode", "Audit where a=b\nDney", `line 2: "Dney": "Dney" is no mode; give Deny, Warn, Audit or Shadow`),
		Entry("nothing", "\n# nothing\n", "line 1: no mode"),
		Entry("a bad percentage", "Deny 101%", `line 1: "Deny 101%": "101%" is no percentage`),
		Entry("an empty selector", "Deny where ", `line 1: "Deny where": there is no selector`),
		Entry("a word", "Deny team=a", `line 1: "Deny team=a": "team=a" is not understood`),
		Entry("a line after one for all objects", "Deny\nWarn 10%", `line 2: "Warn 10%" is never reached`),
	)

	It("are the program's own if the first entry is a bad one", func() {
		m.Set(from("stage", "Dney"))
		Expect(mode("stage", request("a", "x"))).To(Equal(chain.ModeShadow))
		_, problems := m.Describe()
		Expect(problems).To(ConsistOf(And(HavePrefix("stage: line 1: "), HaveSuffix("the program's own mode applies"))))
	})

	It("refuse entries for unknown steps and for those whose mode is fixed", func() {
		m.Set(from("fixed", "Warn", "onwer", "Warn"))
		Expect(mode("fixed", request("a", "x"))).To(Equal(chain.ModeDeny))
		_, problems := m.Describe()
		Expect(problems).To(ConsistOf(
			HavePrefix("fixed: line 1: the step has Settings.FixedMode"),
			HavePrefix("onwer: line 1: this program has no step of this name; it has fixed, owner, stage"),
		))
		Expect([]bool{m.Needed("fixed"), m.Needed("owner")}).To(Equal([]bool{false, true}))
		m.ConfigMap = ""
		Expect(m.Needed("owner")).To(BeFalse())
	})

	It("make a step a shadow only if all of its objects are in ModeShadow", func() {
		changed := func() bool {
			select {
			case <-m.Changed():
				return true
			default:
				return false
			}
		}
		Expect([]bool{m.Shadow("owner"), m.Shadow("stage")}).To(Equal([]bool{false, true}))
		for _, play := range []struct {
			entry            string
			shadows, changes bool
		}{
			{"Shadow", true, true},
			{"Shadow where team=a\nShadow", true, false},
			{"Deny 10%\nShadow", false, true},
			{"Shadow where team=a", false, false},
			{"Audit", false, false},
		} {
			m.Set(from("owner", play.entry))
			Expect(m.Shadow("owner")).To(Equal(play.shadows), play.entry)
			Expect(changed()).To(Equal(play.changes), play.entry)
		}
		m.Set(from("stage", "Shadow where team=a"))
		Expect(m.Shadow("stage")).To(BeTrue(), "its own mode is Shadow")
	})

	It("stay Shadow until API servers have observed the failurePolicy of the step", func() {
		m.Log, m.Lag = logr.Discard(), time.Hour
		m.Registered(map[string]bool{"owner": true}, false)
		m.Set(from("owner", "Deny"))
		Expect(mode("owner", request("a", "x"))).To(Equal(chain.ModeShadow))
		entries, _ := m.Describe()
		Expect(entries).To(ContainElement("owner: Shadow, until its own failurePolicy is registered"))
		m.Registered(map[string]bool{}, false)
		Expect(mode("owner", request("a", "x"))).To(Equal(chain.ModeShadow), "an API server may not know yet")
		m.Lag = 0
		m.Registered(map[string]bool{"owner": true}, false)
		m.Registered(map[string]bool{}, true)
		Expect(mode("owner", request("a", "x"))).To(Equal(chain.ModeShadow), "the registration cannot be read")
		m.Registered(map[string]bool{}, false)
		Expect(mode("owner", request("a", "x"))).To(Equal(chain.ModeDeny))
	})
})

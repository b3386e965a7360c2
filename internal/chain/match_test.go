package chain

// This file specifies which requests a step is asked about: by rules, selectors, and what controllers maintain.

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

func TestChain(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second) // of a busy machine
	RunSpecs(t, "chain")
}

func matcher(rules []admissionregistrationv1.RuleWithOperations, objects, namespaces *metav1.LabelSelector) *Matcher {
	GinkgoHelper()
	m, err := NewMatcher(rules, objects, namespaces)
	Expect(err).NotTo(HaveOccurred())
	return m
}

// rules makes one rule of "operations groups versions resources scope", each a list with commas.
func rules(text string) []admissionregistrationv1.RuleWithOperations {
	words := strings.Fields(text)
	list := func(i int) []string { return strings.Split(strings.ReplaceAll(words[i], "core", ""), ",") }
	r := admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{APIGroups: list(1), APIVersions: list(2), Resources: list(3)}}
	for _, operation := range list(0) {
		r.Operations = append(r.Operations, admissionregistrationv1.OperationType(operation))
	}
	if len(words) > 4 {
		r.Scope = new(admissionregistrationv1.ScopeType(words[4]))
	}
	return []admissionregistrationv1.RuleWithOperations{r}
}

// asked makes a request of "operation group/version/resource/subresource namespace".
func asked(text string) *admissionv1.AdmissionRequest {
	words := strings.Fields(text)
	parts := append(strings.Split(strings.ReplaceAll(words[1], "core", ""), "/"), "")
	req := &admissionv1.AdmissionRequest{
		Operation: admissionv1.Operation(words[0]),
		Resource:  metav1.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}, SubResource: parts[3],
	}
	if len(words) > 2 {
		req.Namespace = words[2]
	}
	return req
}

var _ = Describe("A Matcher", func() {
	DescribeTable("obeys rules:",
		func(rule, request string, expected bool) {
			Expect(matcher(rules(rule), nil, nil).Matches(asked(request))).To(Equal(expected))
		},
		Entry("all is said", "CREATE core v1 pods", "CREATE core/v1/pods cf", true),
		Entry("another operation", "CREATE,UPDATE core v1 pods", "DELETE core/v1/pods cf", false),
		Entry("any operation", "* core v1 pods/exec", "CONNECT core/v1/pods/exec cf", true),
		Entry("the core group is not any group", "CREATE core v1 deployments", "CREATE apps/v1/deployments cf", false),
		Entry("pods are not their status", "UPDATE core v1 pods", "UPDATE core/v1/pods/status cf", false),
		Entry("their status is not pods", "UPDATE core v1 pods/status", "UPDATE core/v1/pods cf", false),
		Entry("any subresource", "UPDATE core v1 pods/*", "UPDATE core/v1/pods/status cf", true),
		Entry("any subresource of another", "UPDATE core v1 nodes/*", "UPDATE core/v1/pods/status cf", false),
		Entry("any resource has no subresource", "UPDATE core v1 *", "UPDATE core/v1/pods/status cf", false),
		Entry("the status of any resource is no resource", "UPDATE * * */status", "UPDATE apps/v1/deployments cf", false),
		Entry("all", "* * * */*", "DELETE apps/v1/deployments/scale cf", true),
		Entry("only namespaced, of the cluster", "* * * * Namespaced", "CREATE core/v1/nodes", false),
		Entry("only namespaced, and a namespace carries its name", "* * * * Namespaced", "DELETE core/v1/namespaces cf", false),
		Entry("only of the cluster, and a namespace", "* * * * Cluster", "UPDATE core/v1/namespaces cf", true),
		Entry("only of the cluster, and the namespaces of another group", "* * * * Cluster", "UPDATE example.org/v1/namespaces cf", false),
		Entry("of any scope", "* * * * *", "CREATE core/v1/nodes", true),
		Entry("of an unknown scope", "* * * * Galaxy", "CREATE core/v1/nodes", false),
	)

	It("matches a request that one of several rules matches, nothing without rules, and everything as nil", func() {
		two := append(rules("CREATE core v1 pods"), rules("DELETE apps v1 deployments")...)
		Expect(matcher(two, nil, nil).Matches(asked("DELETE apps/v1/deployments cf"))).To(BeTrue())
		Expect(matcher(two, nil, nil).Matches(asked("DELETE core/v1/pods cf"))).To(BeFalse())
		Expect(matcher(nil, nil, nil).Matches(asked("DELETE core/v1/pods cf"))).To(BeFalse())
		Expect((*Matcher)(nil).Matches(asked("DELETE core/v1/pods cf"))).To(BeTrue())
	})

	It("looks at the resource that the webhook is registered for, not at the one that the user asked for", func() {
		req := asked("UPDATE apps/v1/deployments cf")
		req.RequestResource = &metav1.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "deployments"}
		Expect(matcher(rules("UPDATE apps v1 deployments"), nil, nil).Matches(req)).To(BeTrue())
		Expect(matcher(rules("UPDATE extensions v1beta1 deployments"), nil, nil).Matches(req)).To(BeFalse())
	})

	const name = "kubernetes.io/metadata.name"
	DescribeTable("obeys the requirements of a namespaceSelector on the name:",
		func(selector *metav1.LabelSelector, request string, expected bool) {
			Expect(matcher(rules("* * * */*"), nil, selector).Matches(asked(request))).To(Equal(expected))
		},
		Entry("the name", theNamespace("cf"), "CREATE core/v1/pods cf", true),
		Entry("another name", theNamespace("cf"), "CREATE core/v1/pods cf-2", false),
		Entry("none of several names", where(name, "In", "a", "b"), "CREATE core/v1/pods cf", false),
		Entry("an excluded name", where(name, "NotIn", "kube-system", "cf"), "CREATE core/v1/pods cf", false),
		Entry("a name at all", where(name, "Exists"), "CREATE core/v1/pods cf", true),
		Entry("no name, which no review holds", where(name, "DoesNotExist"), "CREATE core/v1/pods cf", true),
		Entry("another label, and another name", both(where("team", "In", "blue"), where(name, "NotIn", "cf")), "CREATE core/v1/pods cf", false),
		Entry("another label, and the name", both(where("team", "In", "blue"), where(name, "In", "cf")), "CREATE core/v1/pods cf", true),
		Entry("an object of the cluster", theNamespace("cf"), "CREATE core/v1/nodes", true),
		Entry("the namespace itself", theNamespace("cf"), "UPDATE core/v1/namespaces cf", true),
		Entry("the namespaces of another group, whose labels the API server takes", theNamespace("cf"), "UPDATE example.org/v1/namespaces cf-2", true),
	)

	It("takes a namespace by its own name", func() {
		req := asked("CREATE core/v1/namespaces")
		m := matcher(rules("* * * */*"), nil, theNamespace("cf"))
		Expect(m.Matches(req)).To(BeTrue(), "before it has a name")
		req.Name = "cf"
		Expect(m.Matches(req)).To(BeTrue())
		req.Name = "cf-2"
		Expect(m.Matches(req)).To(BeFalse())
	})

	It("cannot be made of a selector that is none", func() {
		bad := where("a", "Like", "b")
		_, err := NewMatcher(nil, bad, nil)
		Expect(err).To(MatchError(And(HavePrefix("objectSelector: "), ContainSubstring("Like"))))
		_, err = NewMatcher(nil, nil, bad)
		Expect(err).To(MatchError(HavePrefix("namespaceSelector: ")))
		_, err = NewMatcher(nil, where("a", "In"), nil)
		Expect(err).To(HaveOccurred())
	})

	It("is not changed with the rules that it was made of", func() {
		made := rules("CREATE core v1 pods")
		selector := where("app", "In", "web")
		m := matcher(made, selector, nil)
		made[0].Operations[0], made[0].APIGroups[0], made[0].Resources[0] = "DELETE", "apps", "nodes"
		selector.MatchExpressions[0].Values[0] = "other"
		req := asked("CREATE core/v1/pods cf")
		req.Object.Raw = []byte(`{"metadata":{"labels":{"app":"web"}}}`)
		Expect(m.Matches(req)).To(BeTrue())
	})
})

func theNamespace(namespace string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}}
}

func where(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

func both(a, b *metav1.LabelSelector) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: append(a.MatchExpressions, b.MatchExpressions...)}
}

// arrived is the request to create a pod with the label app and as many environment variables.
func arrived(env int) *admissionv1.AdmissionRequest {
	req := asked("CREATE core/v1/pods cf-workloads")
	req.Object.Raw = []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"app-7d4b9c6f8-x2x5k","generateName":"app-7d4b9c6f8-","namespace":"cf-workloads",` +
		`"uid":"6f1c1bb5-0000-4000-8000-0123456789ab","labels":{"app":"app","cloudfoundry.org/guid":"0123-4567","pod-template-hash":"7d4b9c6f8"}},` +
		`"spec":{"containers":[{"name":"app","env":[` + strings.Repeat(`{"name":"ENVIRONMENT","value":"http://example.org/?some=value&of=length"},`, env) + `{}]}]}}`)
	return req
}

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
			Expect(matcher(rules("* * * */*"), selector, nil).Matches(req)).To(Equal(expected))
		},
		Entry("the object has it", isWeb, web, "", true),
		Entry("the old object has it", isWeb, unlabelled, web, true),
		Entry("only the old object is there, and null for the new one", isWeb, "null", web, true),
		Entry("none is there", isWeb, "", "", false),
		Entry("none is there, not even for a label's absence", where("app", "DoesNotExist"), "", "null", false),
		Entry("all must be met by the same object", both(where("app", "In", "web"), where("old", "Exists")), web, `{"metadata":{"labels":{"old":""}}}`, false),
		Entry("matchLabels, not all", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "tier": "x"}}, web, "", false),
		Entry("no such label", where("old", "Exists"), web, "", false),
		Entry("a label that must not be", where("app", "DoesNotExist"), web, "", false),
		Entry("no value is not an empty one", where("app", "In", "", "web"), unlabelled, "", false),
		Entry("no empty value to be excluded", where("app", "NotIn", ""), unlabelled, "", true),
		Entry("no metadata and so no labels", where("app", "DoesNotExist"), execOptions, "", false),
		Entry("labels of null", where("app", "DoesNotExist"), `{"metadata":{"labels":null}}`, "", true),
		Entry("metadata elsewhere", isWeb, `{"spec":{"template":{"metadata":{"labels":{"app":"web"}}}},"metadata":{}}`, "", false),
		Entry("labels elsewhere", isWeb, `{"labels":{"app":"web"},"metadata":{"annotations":{"labels":"{}"}}}`, "", false),
		Entry("spelt with an escape", isWeb, `{"metadata":{"labels":{"\u0061pp":"w\u0065b"}}}`, "", true),
		Entry("the members' names too", isWeb, `{"m\u0065tadata":{"labels":{"app":"web"}}}`, "", true),
		Entry("an escape, and no metadata", where("app", "DoesNotExist"), `{"a\u0062":1}`, "", false),
		Entry("an escape, and metadata of null", where("app", "DoesNotExist"), `{"a\u0062":1,"metadata":null}`, "", true),
		Entry("a value of null", where("app", "In", ""), `{"metadata":{"labels":{"app":null}}}`, "", true),
		Entry("the last of two labels counts", isWeb, `{"metadata":{"labels":{"app":"db","app":"web"}}}`, "", true),
		Entry("labels of a wrong type are left to the step's decoder", isWeb, `{"metadata":{"labels":{"app":1}}}`, "", true),
		Entry("a text that is no object is left to the step's decoder", isWeb, `"text"`, "", true),
	)

	It("costs no memory, however large the object is", func() {
		req := arrived(60 * 20)
		m := matcher(rules("* * * */*"), where("app", "In", "app"), nil)
		matches := true
		Expect(testing.AllocsPerRun(20, func() { matches = matches && m.Matches(req) })).To(BeZero())
		Expect(matches).To(BeTrue())
	})
})

// FuzzLabels holds the selection by the labels in the text against apimachinery's by the decoded labels.
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

// twice reports whether metadata or labels can occur more than once, which the reader does not detect.
func twice(raw []byte) bool {
	count := 0
	c := jsontext.Reader{Text: raw}
	for more := c.Enter('{'); more; more = c.More('{') {
		if string(c.Name()) == "metadata" {
			count++
			for more := c.Enter('{'); more; more = c.More('{') {
				if string(c.Name()) == "labels" {
					count += 10
				}
				c.Value()
			}
			continue
		}
		c.Value()
	}
	return c.Failed() || count%10 > 1 || count > 11
}

// decodeLabels decodes what a Matcher searches for. ok is false if the labels cannot be read.
func decodeLabels(raw []byte) (labels map[string]string, metadata, ok bool) {
	var object struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil, false, false
	}
	if object.Metadata == nil {
		return nil, false, true
	}
	var meta struct {
		Labels map[string]string `json:"labels"`
	}
	err := kjson.UnmarshalCaseSensitivePreserveInts(object.Metadata, &meta)
	return meta.Labels, true, err == nil
}

var _ = Describe("An object that another program maintains", func() {
	const (
		deployment = `{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"u","controller":true,"blockOwnerDeletion":true}`
		related    = `{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"u"},{"controller":false}`
		custom     = `{"apiVersion":"shop.example.org/v1","kind":"Deployment","name":"web","uid":"u","controller":true}`
		service    = `{"apiVersion":"v1","kind":"Service","name":"web","uid":"u","controller":true}`
		set        = `{"kind":"StatefulSet","controller":true,"apiVersion":"apps/v1"}`

		maker  = "system:serviceaccount:kube-system:replicaset-controller"
		tenant = "tenant"
	)
	owners := func(all string) string { return `"ownerReferences":[` + all + `]` }
	type sent struct {
		*admissionv1.AdmissionRequest
		user func() // sets the user
	}
	review := func(request, user, metadata string) sent {
		rev := sent{AdmissionRequest: asked(request)}
		rev.user = func() { rev.UserInfo.Username = user }
		rev.Object = runtime.RawExtension{Raw: []byte(`{"kind":"X","metadata":{"name":"w\u0065b",` + metadata + `,"labels":{}},"spec":{"a":1}}`)}
		return rev
	}
	leaves := func(m *Matcher, rev sent) bool { return m.leaves(rev.AdmissionRequest, rev.user) }
	auto, skip := matcher(rules("* * * *"), nil, nil), matcher(rules("* * * *"), nil, nil)
	auto.Leave(false)
	skip.Leave(true)

	It("is left alone by each step of a chain as that step's own setting says", func() {
		never := matcher(rules("* * * *"), nil, nil)
		c := New("a", Config{Steps: []Step{{Matcher: auto}, {Matcher: skip}, {Matcher: never}, {}, {Matcher: skip}, {Matcher: auto}}}, unexposed(), nil)
		rev := review("CREATE apps/v1/replicasets cf", tenant, owners(deployment))
		wants, some := c.Select(rev.AdmissionRequest, rev.user)
		Expect(some).To(BeTrue())
		var left []bool
		for _, w := range wants {
			left = append(left, w&owned != 0)
		}
		Expect(left).To(Equal([]bool{false, true, false, false, true, false}))
	})

	DescribeTable("is left alone, if its maker sends it:", func(request, user, metadata string, left bool) {
		Expect(leaves(auto, review(request, user, metadata))).To(Equal(left))
		Expect(leaves(auto, review(request, user, strings.Replace(metadata, `":`, `" : `, 1)))).To(Equal(left))
		deleted := review(strings.Replace(request, "CREATE", "DELETE", 1), user, metadata)
		deleted.OldObject, deleted.Object = deleted.Object, runtime.RawExtension{}
		Expect(leaves(auto, deleted)).To(Equal(left), "on its way out")
		Expect(leaves(matcher(rules("* * * *"), nil, nil), review(request, user, metadata))).To(BeFalse(), "unless it is wanted")
	},
		Entry("a ReplicaSet of a Deployment", "CREATE apps/v1/replicasets cf", maker, owners(deployment), true),
		Entry("by a controller manager with one account for all", "CREATE apps/v1/replicasets cf", "system:kube-controller-manager", owners(deployment), true),
		Entry("not if the user claims the owner", "CREATE apps/v1/replicasets cf", tenant, owners(deployment), false),
		Entry("nor if an account of another namespace does", "CREATE apps/v1/replicasets cf", "system:serviceaccount:default:my-controller", owners(deployment), false),
		Entry("nor if an account of kube-system that is no controller does", "CREATE apps/v1/replicasets cf", "system:serviceaccount:kube-system:gitops", owners(deployment), false),
		Entry("a ReplicaSet that merely belongs to something is not", "CREATE apps/v1/replicasets cf", maker, owners(related), false),
		Entry("nor one of a custom resource", "CREATE apps/v1/replicasets cf", maker, owners(custom), false),
		Entry("a ControllerRevision of a StatefulSet", "CREATE apps/v1/controllerrevisions cf", maker, owners(set), true),
		Entry("an EndpointSlice of a Service", "CREATE discovery.k8s.io/v1/endpointslices cf", maker, owners(service), true),
		Entry("a Deployment is not", "CREATE apps/v1/deployments cf", maker, owners(service), false),
		Entry("a pod of a ReplicaSet is not", "CREATE core/v1/pods cf", maker, owners(`{"apiVersion":"apps/v1","kind":"ReplicaSet","controller":true}`), false),
		Entry("a custom resource of a custom resource is not", "CREATE shop.example.org/v1/replicasets cf", maker, owners(deployment), false),
		Entry("the mirror of a static pod", "CREATE core/v1/pods cf", "system:node:a", `"annotations":{"a":"b","kubernetes.io/config.mirror":"hash"}`, true),
		Entry("not if the user claims that it is one", "CREATE core/v1/pods cf", tenant, `"annotations":{"kubernetes.io/config.mirror":"hash"}`, false),
		Entry("a pod with other annotations is not", "CREATE core/v1/pods cf", "system:node:a", `"annotations":{"kubernetes.io/config":"mirror"}`, false),
	)

	DescribeTable("is left alone in an update by its user, if nothing else changes:", func(before, after string, left bool) {
		rev := review("UPDATE apps/v1/replicasets cf", tenant, "")
		rev.OldObject.Raw, rev.Object.Raw = []byte(before), []byte(after)
		Expect(leaves(auto, rev)).To(Equal(left))
	},
		Entry("status", `{"metadata":{`+owners(deployment)+`},"spec":{"a":1}}`, `{"metadata":{`+owners(deployment)+`},"spec":{"a":1},"status":{"x":1}}`, true),
		Entry("replicas", `{"metadata":{`+owners(deployment)+`},"spec":{"replicas":1,"a":1}}`, `{"metadata":{`+owners(deployment)+`},"spec":{"a":1,"replicas":2}}`, true),
		Entry("but not the rest of the spec", `{"metadata":{`+owners(deployment)+`},"spec":{"replicas":1,"a":1}}`, `{"metadata":{`+owners(deployment)+`},"spec":{"a":2}}`, false),
		Entry("nor another member", `{"metadata":{`+owners(deployment)+`},"data":1}`, `{"metadata":{`+owners(deployment)+`},"data":2}`, false),
		Entry("nor one whose text looks the same", `{"metadata":{`+owners(deployment)+`},"a":1,"b":2}`, `{"metadata":{`+owners(deployment)+`},"a\":1\"b":2}`, false),
		Entry("nor an owner that comes", `{"metadata":{},"spec":{"a":1}}`, `{"metadata":{`+owners(deployment)+`},"spec":{"a":1}}`, false),
	)

	It("is left alone, from any sender, if the step skips all that a controller owns", func() {
		for _, request := range []string{"CREATE apps/v1/replicasets cf", "UPDATE batch/v1/jobs cf", "CREATE core/v1/pods cf", "CREATE shop.example.org/v1/shops cf"} {
			Expect(leaves(skip, review(request, tenant, owners(custom)))).To(BeTrue(), request)
			Expect(leaves(skip, review(request, tenant, owners(related)))).To(BeFalse(), request)
			Expect(leaves(skip, review(request, tenant, `"annotations":{"kubernetes.io/config.mirror":"hash"},`+owners(custom)))).To(BeTrue(), request)
		}
	})

	It("is for the step's decoder to judge when it cannot be read", func() {
		for _, raw := range []string{`1`, `{"metadata":1}`, `{"metadata":null}`, `{}`, ``, `{"metadata":{"ownerReferences":1}}`, `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","controller":true},1]}}`} {
			for _, m := range []*Matcher{auto, skip} {
				rev := review("CREATE apps/v1/replicasets cf", maker, "")
				rev.Object.Raw = []byte(raw)
				Expect(leaves(m, rev)).To(BeFalse(), raw)
			}
		}
	})
})

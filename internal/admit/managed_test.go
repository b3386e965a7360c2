package admit

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
)

var _ = Describe("What somebody else keeps as it is", func() {
	const (
		owned   = `"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"u","controller":true,"blockOwnerDeletion":true}]`
		related = `"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"web","uid":"u"},{"controller":false}]`
		mirror  = `"annotations":{"a":"b","kubernetes.io/config.mirror":"hash"}`
	)
	DescribeTable("is left alone:", func(request, metadata string, managed bool) {
		for _, raw := range []string{
			`{"kind":"X","metadata":{"name":"web",` + metadata + `,"labels":{}},"spec":{}}`,
			`{"kind":"X","metadata":{"name":"w\u0065b",` + strings.Replace(metadata, `":`, `" : `, 1) + `}}`,
			`{"m\u0065tadata":{` + metadata + `}}`,
		} {
			m := matcher(rules("* * * *"), nil, nil)
			m.LeaveManaged()
			req := asked(request)
			req.Object = runtime.RawExtension{Raw: []byte(raw)}
			Expect(m.matches(req)).To(Equal(!managed), raw)
			req.Object, req.OldObject = runtime.RawExtension{}, req.Object
			Expect(m.matches(req)).To(Equal(!managed), "on its way out")
			Expect(matcher(rules("* * * *"), nil, nil).matches(req)).To(BeTrue(), "unless it is wanted")
		}
	},
		Entry("a ReplicaSet of a Deployment", "CREATE apps/v1/replicasets cf", owned, true),
		Entry("a ReplicaSet that merely belongs to something", "CREATE apps/v1/replicasets cf", related, false),
		Entry("one of nobody", "CREATE apps/v1/replicasets cf", `"ownerReferences":null`, false),
		Entry("a pod of a ReplicaSet is not", "CREATE core/v1/pods cf", owned, false),
		Entry("the mirror of a static pod", "CREATE core/v1/pods cf", mirror, true),
		Entry("another object with that annotation is not", "CREATE core/v1/configmaps cf", mirror, false),
		Entry("a pod with other annotations is not", "CREATE core/v1/pods cf", `"annotations":{"kubernetes.io/config":"mirror"}`, false),
		Entry("what has no metadata is not", "CONNECT core/v1/pods cf", `"x":1`, false),
	)

	It("is for the step's decoder to judge when it cannot be read", func() {
		m := matcher(rules("* * * *"), nil, nil)
		m.LeaveManaged()
		for _, raw := range []string{`1`, `{"metadata":1}`, `{"metadata":null}`, `{}`, ``, `{"metadata":{"ownerReferences":1}}`} {
			req := asked("CREATE apps/v1/replicasets cf")
			req.Object.Raw = []byte(raw)
			Expect(m.matches(req)).To(BeTrue(), raw)
		}
	})
})

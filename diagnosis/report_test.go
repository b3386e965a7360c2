package diagnosis_test

// This file specifies what a report says of its findings.

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/go-logr/zapr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"code.cloudfoundry.org/eirinix/diagnosis"
)

func TestDiagnosis(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "diagnosis")
}

var _ = Describe("A report", func() {
	secret := diagnosis.Right{Resource: "secrets", Verb: "get", Namespace: "cf", Name: "certificate"}
	report := diagnosis.Report{Findings: []diagnosis.Finding{
		{Code: diagnosis.ConnectionRefused, Severity: diagnosis.Problem, Object: "https://h:1", Message: "nothing listens", Remedy: "listen", Evidence: "dial:\n refused"},
		{Code: diagnosis.Excluded, Severity: diagnosis.Warning, Message: "left out", Remedy: "label it"},
		{Code: diagnosis.CheckSkipped, Severity: diagnosis.Note, Message: "not looked at", Rights: []diagnosis.Right{secret}},
	}}

	It("prints one line per finding", func() {
		Expect(report.String()).To(Equal("problem ConnectionRefused: nothing listens; listen (dial: refused)\n" +
			"warning Excluded: left out; label it\nnote CheckSkipped: not looked at\n"))
	})

	It("is an error for its problems alone", func() {
		Expect(report.Err()).To(MatchError("ConnectionRefused: nothing listens; listen (dial: refused)"))
		found, ok := errors.AsType[diagnosis.Finding](report.Err())
		Expect(ok).To(BeTrue())
		Expect(found).To(Equal(report.Findings[0]))
		Expect(diagnosis.Report{Findings: report.Findings[1:]}.Err()).NotTo(HaveOccurred())
		Expect(diagnosis.Report{}.Err()).NotTo(HaveOccurred())
	})

	It("finds by code, and knows the rights that were missing", func() {
		found, ok := report.Find(diagnosis.Excluded)
		Expect(ok).To(BeTrue())
		Expect(found).To(Equal(report.Findings[1]))
		_, ok = report.Find(diagnosis.Healthy)
		Expect(ok).To(BeFalse())
		Expect(report.Rights()).To(Equal([]diagnosis.Right{secret}))
	})

	It("logs each finding with its parts", func() {
		var lines []string
		report.Log(funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
		Expect(lines).To(HaveLen(3))
		Expect(lines[0]).To(And(ContainSubstring(`"error"=null`), ContainSubstring(`"code"="ConnectionRefused"`), ContainSubstring(`"remedy"="listen"`), ContainSubstring(`"object"="https://h:1"`)))
		Expect(lines[1]).To(And(ContainSubstring(`"level"=0`), ContainSubstring(`"severity"="warning"`), Not(ContainSubstring("evidence"))))
	})

	It("logs warnings at their level", func() {
		core, logs := observer.New(zap.DebugLevel)
		var lines bytes.Buffer
		for _, log := range []logr.Logger{zapr.NewLogger(zap.New(core)), logr.FromSlogHandler(slog.NewTextHandler(&lines, nil))} {
			report.Log(log)
		}
		Expect(logs.All()).To(HaveExactElements(HaveField("Level", zap.ErrorLevel), And(HaveField("Level", zap.WarnLevel), HaveField("Message", "left out")), HaveField("Level", zap.InfoLevel)))
		Expect(logs.All()[1].ContextMap()).To(And(HaveKeyWithValue("remedy", "label it"), HaveKeyWithValue("severity", diagnosis.Warning)))
		Expect(lines.String()).To(MatchRegexp(`level=WARN msg="left out" code=Excluded severity=warning`))
	})

	It("is JSON", func() {
		Expect(json.Marshal(diagnosis.Report{Findings: report.Findings[1:2]})).
			To(MatchJSON(`{"findings":[{"code":"Excluded","severity":"warning","message":"left out","remedy":"label it"}]}`))
	})
})

var _ = DescribeTable("A right reads",
	func(r diagnosis.Right, expected string) { Expect(r.String()).To(Equal(expected)) },
	Entry("in a namespace", diagnosis.Right{Resource: "configmaps", Verb: "create", Namespace: "cf"}, "create configmaps in namespace cf"),
	Entry("for one object", diagnosis.Right{Resource: "secrets", Verb: "get", Namespace: "cf", Name: "certificate"}, "get secrets cf/certificate"),
	Entry("for one object without namespace", diagnosis.Right{Resource: "namespaces", Verb: "get", Name: "cf"}, "get namespaces cf"),
	Entry("with group and subresource", diagnosis.Right{Group: "apps", Resource: "deployments/scale", Verb: "update"}, "update deployments/scale.apps"),
)

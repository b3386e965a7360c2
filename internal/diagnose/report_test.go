package diagnose_test

import (
	"encoding/json"
	"errors"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/diagnose"
)

var _ = Describe("A report", func() {
	report := diagnose.Report{Findings: []diagnose.Finding{
		{Code: diagnose.ConnectionRefused, Severity: diagnose.Problem, Object: "https://h:1", Message: "nothing listens", Remedy: "listen", Evidence: "dial:\n refused"},
		{Code: diagnose.Excluded, Severity: diagnose.Warning, Message: "left out", Remedy: "label it"},
		{Code: diagnose.CannotLook, Severity: diagnose.Note, Message: "not looked at", Rights: []diagnose.Right{secret("get")}},
	}}

	It("prints one line per finding", func() {
		Expect(report.String()).To(Equal("problem ConnectionRefused: nothing listens; listen (dial: refused)\n" +
			"warning Excluded: left out; label it\nnote CannotLook: not looked at\n"))
	})

	It("is an error for its problems alone", func() {
		Expect(report.Err()).To(MatchError("ConnectionRefused: nothing listens; listen (dial: refused)"))
		found, ok := errors.AsType[diagnose.Finding](report.Err())
		Expect(ok).To(BeTrue())
		Expect(found).To(Equal(report.Findings[0]))
		Expect(diagnose.Report{Findings: report.Findings[1:]}.Err()).NotTo(HaveOccurred())
		Expect(diagnose.Report{}.Err()).NotTo(HaveOccurred())
	})

	It("knows the rights that were missing", func() {
		Expect(report.Rights()).To(Equal([]diagnose.Right{secret("get")}))
	})

	It("finds by code", func() {
		found, ok := report.Find(diagnose.Excluded)
		Expect(ok).To(BeTrue())
		Expect(found).To(Equal(report.Findings[1]))
		_, ok = report.Find(diagnose.Well)
		Expect(ok).To(BeFalse())
	})

	It("logs each finding with its parts", func() {
		var lines []string
		report.Log(funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
		Expect(lines).To(HaveLen(3))
		Expect(lines[0]).To(And(ContainSubstring(`"error"=null`), ContainSubstring(`"code"="ConnectionRefused"`), ContainSubstring(`"remedy"="listen"`), ContainSubstring(`"object"="https://h:1"`)))
		Expect(lines[1]).To(And(ContainSubstring(`"level"=0`), ContainSubstring(`"severity"="warning"`), Not(ContainSubstring("evidence"))))
	})

	It("reports a diagnosis that could not begin", func() {
		Expect(diagnose.Failed(errors.New("no kubeconfig found")).Err()).To(MatchError("NotBegun: no kubeconfig found"))
	})

	It("is JSON", func() {
		Expect(json.Marshal(diagnose.Report{Findings: report.Findings[1:2]})).
			To(MatchJSON(`{"findings":[{"code":"Excluded","severity":"warning","message":"left out","remedy":"label it"}]}`))
	})
})

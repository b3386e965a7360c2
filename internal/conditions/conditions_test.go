package conditions_test

// This file specifies which matchConditions are refused, and what the shipped package does not link.

import (
	"errors"
	"os/exec"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"code.cloudfoundry.org/eirinix/internal/conditions"
)

func TestConditions(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "MatchConditions")
}

func where(expressions ...string) []admissionregistrationv1.MatchCondition {
	var all []admissionregistrationv1.MatchCondition
	for _, e := range expressions {
		all = append(all, admissionregistrationv1.MatchCondition{Name: "c", Expression: e})
	}
	return all
}

// internal/webhookconf compares it with a real API server, expression by expression.
var _ = Describe("Check", func() {
	It("accepts conditions that compile", func() {
		Expect(conditions.Check("w", nil)).To(Succeed())
		Expect(conditions.Check("w", where("true", "object.metadata.name == 'a'"))).To(Succeed())
	})

	It("returns every fault at once, with the webhook, the remedy and the API server's reason", func() {
		err := conditions.Check("w.example.org", where("object.", "true", " request.name "))
		all := err.(interface{ Unwrap() []error }).Unwrap()
		Expect(all).To(HaveExactElements(
			MatchError(HavePrefix(`webhook "w.example.org": correct Settings.Conditions: matchConditions[0].expression: Invalid value: "object.": compilation failed: ERROR: <input>:1:8: Syntax error`)),
			MatchError(`webhook "w.example.org": correct Settings.Conditions: matchConditions[2].expression: Invalid value: "request.name": must evaluate to bool but got string`),
		))
		for _, e := range all {
			_, ok := errors.AsType[*field.Error](e)
			Expect(ok).To(BeTrue())
		}
	})
})

var _ = Describe("The shipped package", func() {
	It("does without the API server's code, which takes a program some 7 MB of memory", func(ctx SpecContext) {
		out, err := exec.CommandContext(ctx, "go", "list", "-deps", "code.cloudfoundry.org/eirinix").Output()
		Expect(err).NotTo(HaveOccurred())
		Expect(string(out)).To(And(
			ContainSubstring("code.cloudfoundry.org/eirinix/internal/webhookconf\n"),
			Not(ContainSubstring("k8s.io/apiserver/")), Not(ContainSubstring("github.com/google/cel-go/")),
		))
		for _, beside := range []string{"audit", "conversion", "manifests", "offline", "preview", "recording", "testing", "internal/audit", "internal/convert", "internal/record"} {
			Expect(string(out)).NotTo(ContainSubstring("code.cloudfoundry.org/eirinix/"+beside+"\n"), "programs that do not import it do not link it")
		}
	})
})

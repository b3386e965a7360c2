package webhookconf_test

// This file compares the settings of steps with the fields of the API's webhooks. A new field on either side fails here
// until this package knows it.

import (
	"encoding/json"
	"reflect"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"code.cloudfoundry.org/eirinix/internal/typedconf"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// settingChanges changes each setting of an ordinary step.
var settingChanges = map[string]change{
	"Rules":                updates,
	"Namespaces":           namespaces(labels1("a", "1")),
	"Objects":              objects(labels1("a", "1")),
	"Conditions":           conditions(admissionregistrationv1.MatchCondition{Name: "yes", Expression: "true"}),
	"FailurePolicy":        ignore,
	"MatchPolicy":          exact,
	"Timeout":              func(s *webhookconf.Step) { s.Timeout = 7 * time.Second },
	"Reinvoke":             ifNeeded,
	"SideEffects":          dry,
	"Isolated":             isolated,
	"AllowClusterCritical": critical,
}

// unregistered are the settings that write nothing to a webhook.
var unregistered = []string{"Owned", "Mode", "FixedMode", "DependsOnUser"}

var _ = Describe("The fields of the API's webhooks", func() {
	full := func(changes ...change) []webhookconf.Entry {
		for _, c := range settingChanges {
			changes = append(changes, c)
		}
		return webhookconf.Group([]webhookconf.Step{step("a", changes...)})
	}
	expectAllSet := func(webhook any) {
		GinkgoHelper()
		v := reflect.ValueOf(webhook)
		for i := range v.NumField() {
			Expect(v.Field(i).IsZero()).To(BeFalse(), "%s is not set: give it a setting, or the API server's default", v.Type().Field(i).Name)
		}
	}

	It("are all set, in webhooks of both kinds", func() {
		expectAllSet(mutatingOf(serviceOptions(), full())[0])
		expectAllSet(validatingOf(serviceOptions(), full(validating))[0])
	})

	It("are all kept when a validating webhook is read as a mutating one, which has one more", func() {
		v := validatingOf(serviceOptions(), full(validating))[0]
		w := typedconf.AsMutating(v)
		Expect(w.ReinvocationPolicy).To(BeNil())
		w.ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
		expectAllSet(w)
		Expect(w.Rules).To(Equal(v.Rules))
		Expect(json.Marshal(serviceOptions().Webhook(full(validating)[0]))).To(Equal(marshal(v)), "a digest does not tell the two forms apart")
		Expect(reflect.TypeFor[admissionregistrationv1.MutatingWebhook]().NumField()).To(
			Equal(reflect.TypeFor[admissionregistrationv1.ValidatingWebhook]().NumField() + 1))
	})

	It("follow from the settings, each of which changes the webhook", func() {
		first := mutatingOf(serviceOptions(), webhookconf.Group([]webhookconf.Step{step("a")}))
		for field := range reflect.TypeFor[webhookconf.Settings]().Fields() {
			if field.Name == "Operations" || slices.Contains(unregistered, field.Name) {
				continue // Rules contain the operations
			}
			c := settingChanges[field.Name]
			Expect(c).NotTo(BeNil(), "%s has no change in this spec", field.Name)
			Expect(mutatingOf(serviceOptions(), webhookconf.Group([]webhookconf.Step{step("a", c)}))).NotTo(Equal(first), field.Name)
		}
	})

	It("name the steps that are shadows in an annotation, which is part of the version", func() {
		shadow := func(s *webhookconf.Step) { s.Shadow, s.FailurePolicy = true, admissionregistrationv1.Ignore }
		ignoring := func(s *webhookconf.Step) { s.FailurePolicy = admissionregistrationv1.Ignore }
		version := func(steps ...webhookconf.Step) string {
			return webhookconf.Digest(webhookconf.Desired{Options: serviceOptions(), Entries: webhookconf.Group(steps)})
		}
		Expect(version(step("a", shadow))).NotTo(Equal(version(step("a", ignoring))))
		Expect(mutatingOf(serviceOptions(), webhookconf.Group([]webhookconf.Step{step("a", shadow)}))).To(
			Equal(mutatingOf(serviceOptions(), webhookconf.Group([]webhookconf.Step{step("a", ignoring)}))))
	})

	It("do not depend on the mode", func() {
		for _, mode := range []webhookconf.Mode{webhookconf.ModeWarn, webhookconf.ModeAudit} {
			watching := func(s *webhookconf.Step) { s.Mode = mode }
			Expect(webhookconf.Check([]webhookconf.Step{step("a", watching)}, serviceOptions())).To(Succeed())
			Expect(mutatingOf(serviceOptions(), webhookconf.Group([]webhookconf.Step{step("a"), step("b", watching)}))).To(
				Equal(mutatingOf(serviceOptions(), webhookconf.Group([]webhookconf.Step{step("a"), step("b")}))))
		}
		unknown := webhookconf.Check([]webhookconf.Step{step("a", func(s *webhookconf.Step) { s.Mode = "Watch" })}, serviceOptions())
		Expect(unknown).To(MatchError(And(ContainSubstring(`Unsupported value: "Watch"`), ContainSubstring("set Settings.Mode to one of these"))))
	})

	It("never mix: steps that differ in a setting share no webhook, unless it can be merged", func() {
		merged := map[string]bool{"Operations": true, "Rules": true, "FailurePolicy": true, "Timeout": true}
		for field := range reflect.TypeFor[webhookconf.Settings]().Fields() {
			if !merged[field.Name] && !slices.Contains(unregistered, field.Name) {
				Expect(settingChanges[field.Name]).NotTo(BeNil(), "%s has no change in this spec", field.Name)
				Expect(shared(step("a"), step("b", settingChanges[field.Name]))).To(Equal("a b"), field.Name)
			}
		}
	})
})

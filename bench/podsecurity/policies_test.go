package podsecurity

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// TestMerged expects one policy in which each validation uses the variables of its own policy.
func TestMerged(t *testing.T) {
	spec := func(validation string, variables ...string) (s admissionregistrationv1.ValidatingAdmissionPolicySpec) {
		for i := 0; i < len(variables); i += 2 {
			s.Variables = append(s.Variables, admissionregistrationv1.Variable{Name: variables[i], Expression: variables[i+1]})
		}
		s.Validations = []admissionregistrationv1.Validation{{Expression: validation}}
		return s
	}
	one, err := merged(map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec{
		"a": spec("variables.all == 1", "all", "x"),
		"b": spec("variables.all == 2 && variables.more", "all", "y", "more", "variables.all > 0"),
		"c": spec("variables.all == 3", "all", "x"),
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range one.Variables {
		got[v.Name] = v.Expression
	}
	if len(one.Variables) != 3 || got["all"] != "x" || got["all2"] != "y" || got["more"] != "variables.all2 > 0" {
		t.Errorf("variables: %v", one.Variables)
	}
	for i, expected := range []string{"variables.all == 1", "variables.all2 == 2 && variables.more", "variables.all == 3"} {
		if e := one.Validations[i].Expression; e != expected {
			t.Errorf("%s, and not %s", e, expected)
		}
	}
	conditions := spec("true")
	conditions.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "some", Expression: "true"}}
	if _, err := merged(map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec{"a": conditions}); err == nil {
		t.Error("conditions were dropped")
	}
}

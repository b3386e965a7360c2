package patch_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

// tally counts members that only raw knew, over many patches.
type tally struct{ patched, kept, lost, misplaced int }

// try makes a random pod, has it edited, and checks everything that must be true of the patch.
func try(seed uint64, script []byte, sum *tally) error {
	r := newPotter(seed)
	raw, planted := r.arrive(r.pod())
	before, err := decode[corev1.Pod](raw)
	if err != nil {
		return err
	}
	after := before.DeepCopy()
	for _, kind := range script {
		r.edit(after, kind)
	}
	ops, err := patch.Diff(raw, &before, after)
	if err != nil {
		return fmt.Errorf("diff: %w", err)
	}
	text := patch.AppendJSON(nil, ops)
	applied, err := apply(raw, text)
	if err != nil {
		return fmt.Errorf("apply: %w\n%s", err, text)
	}
	made, err := patch.Compare(raw, jsontext.Index{}, &before, after)
	if err != nil {
		return err
	}
	if !made.Is(ops) {
		return fmt.Errorf("two patches of one change differ: %s", text)
	}
	if seed%8 == 0 {
		if err := agrees(raw, text, made.Apply); err != nil {
			return err
		}
	}
	have, err := decode[corev1.Pod](applied)
	if err != nil {
		return err
	}
	plain, err := json.Marshal(after)
	if err != nil {
		return err
	}
	want, err := decode[corev1.Pod](plain)
	if err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(have, want) {
		return fmt.Errorf("the patch\n%s\ngives\n%s\ninstead of\n%s", text, applied, plain)
	}
	if equality.Semantic.DeepEqual(before, want) && ops != nil {
		return fmt.Errorf("operations without a change: %s", text)
	}
	if len(ops) > 0 {
		sum.patched++
	}
	var tree map[string]any
	if err := json.Unmarshal(applied, &tree); err != nil {
		return err
	}
	return survey(tree, treeOf(after), planted, sum, string(text))
}

// survey looks for the planted members: each must stand where its object is now.
func survey(applied, after map[string]any, planted map[string]bool, sum *tally, text string) error {
	survivors := map[string]bool{}
	visit(after, "", func(path string, _ map[string]any) { survivors[path] = planted[path] })
	seen := map[string]bool{}
	var problems []string
	visit(applied, "", func(path string, object map[string]any) {
		origin, ok := object["x-unknown"].(string)
		switch {
		case ok && seen[origin]:
			sum.misplaced++
			problems = append(problems, "twice: "+origin)
		case ok && origin == path:
			sum.kept++
		case ok && survivors[origin]:
			sum.misplaced++
			problems = append(problems, origin+" found at "+path)
		case !ok && survivors[path]:
			sum.lost++
			problems = append(problems, "lost: "+path)
		}
		seen[origin] = seen[origin] || ok
	})
	if problems != nil {
		return fmt.Errorf("%s\nafter %s", strings.Join(problems, "\n"), text)
	}
	return nil
}

var _ = Describe("Random pods", func() {
	It("lose nothing and mix nothing up, in 3,200 edits", Label("sequential"), func() {
		var sum tally
		for seed := range uint64(3200) {
			r := newPotter(seed + 1e6)
			script := make([]byte, 1+r.IntN(6))
			for i := range script {
				script[i] = byte(r.IntN(16))
			}
			Expect(try(seed, script, &sum)).To(Succeed(), "seed %d, script %v", seed, script)
		}
		Expect(sum.lost).To(BeZero())
		Expect(sum.misplaced).To(BeZero())
		Expect(sum.patched).To(BeNumerically(">", 2800))
		Expect(sum.kept).To(BeNumerically(">", 32000))
	})
	It("need no patch when they are not changed", func() {
		for seed := range uint64(200) {
			r := newPotter(seed)
			raw, _ := r.arrive(r.pod())
			before, err := decode[corev1.Pod](raw)
			Expect(err).NotTo(HaveOccurred())
			Expect(patch.Diff(raw, &before, before.DeepCopy())).To(BeNil())
		}
	})
})

func FuzzDiffPodEdits(f *testing.F) {
	for seed := range uint64(32) {
		f.Add(seed, []byte{byte(seed), byte(seed + 5), byte(seed * 3)})
	}
	f.Fuzz(func(t *testing.T, seed uint64, script []byte) {
		if err := try(seed, script[:min(len(script), 24)], &tally{}); err != nil {
			t.Fatal(err)
		}
	})
}

package main

// This file shows the difference between two pods.

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// contextLines is the number of unchanged lines that are shown around a change.
const contextLines = 3

// edit is one line of a diff: kept (' '), removed ('-') or added ('+').
type edit struct {
	kind byte
	text string
}

// showDiff writes the changes of an admission webhook to a pod, as a unified diff of YAML.
func showDiff(out printer, was string, before *corev1.Pod, is string, after *corev1.Pod) error {
	a, err := podYAML(before)
	if err != nil {
		return err
	}
	b, err := podYAML(after)
	if err != nil {
		return err
	}
	out.line("  %s", out.paint(red, "--- "+was))
	out.line("  %s", out.paint(green, "+++ "+is))
	colours := map[byte]string{'-': red, '+': green, '@': cyan}
	for _, e := range unified(edits(strings.Split(a, "\n"), strings.Split(b, "\n"))) {
		out.line("  %s", out.paint(colours[e.kind], strings.TrimRight(string(e.kind)+e.text, " ")))
	}
	return nil
}

// podYAML returns a pod as YAML, without the fields that differ between any two pods and without those that the cluster
// sets after admission.
func podYAML(pod *corev1.Pod) (string, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return "", err
	}
	for _, field := range []string{"apiVersion", "kind", "status"} {
		delete(object, field)
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		for _, field := range []string{"managedFields", "uid", "creationTimestamp", "resourceVersion", "generation"} {
			delete(metadata, field)
		}
	}
	if spec, ok := object["spec"].(map[string]any); ok {
		delete(spec, "nodeName") // set by the scheduler
	}
	data, err := yaml.Marshal(object)
	return strings.TrimRight(string(data), "\n"), err
}

// edits returns the edits that turn a into b along their longest common subsequence. The time and memory are quadratic
// in the number of lines, which does not matter for small objects.
func edits(a, b []string) []edit {
	common := make([][]int, len(a)+1) // length of the longest common subsequence of a[i:] and b[j:]
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var list []edit
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			list = append(list, edit{' ', a[i]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			list = append(list, edit{'-', a[i]})
			i++
		default:
			list = append(list, edit{'+', b[j]})
			j++
		}
	}
	return list
}

// unified omits the lines that are far from any change, and starts each hunk with its position ('@').
func unified(list []edit) []edit {
	var result []edit
	a, b := 1, 1 // the next line number of each side
	for i := 0; i < len(list); {
		if !changesWithin(list, i, i+contextLines+1) {
			i, a, b = i+1, a+1, b+1
			continue
		}
		end := i
		for end < len(list) && changesWithin(list, end-contextLines, end+contextLines+1) {
			end++
		}
		removed, added := 0, 0
		for _, e := range list[i:end] {
			if e.kind != '+' {
				removed++
			}
			if e.kind != '-' {
				added++
			}
		}
		result = append(result, edit{'@', fmt.Sprintf("@ -%d,%d +%d,%d @@", a, removed, b, added)})
		result = append(result, list[i:end]...)
		i, a, b = end, a+removed, b+added
	}
	return result
}

func changesWithin(list []edit, from, to int) bool {
	for _, e := range list[max(from, 0):min(to, len(list))] {
		if e.kind != ' ' {
			return true
		}
	}
	return false
}

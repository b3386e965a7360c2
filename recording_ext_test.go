package eirinix_test

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/preview"
	"code.cloudfoundry.org/eirinix/recording"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

var _ = Describe("A Manager that runs", Label("api-server"), func() {
	recorded := func(dir string) []string {
		GinkgoHelper()
		files, err := filepath.Glob(filepath.Join(dir, "*.json"))
		Expect(err).NotTo(HaveOccurred())
		return files
	}

	It("records the calls of an API server until it is stopped, and can be replayed", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		options := urlOptions(namespace)
		logger, logs := Observed()
		options.Logger = logger
		m := addEnvManager(options)
		ended := startManager(ctx, m)
		Eventually(m.Ready()).WithTimeout(patience).Should(BeClosed())
		dir, rest := GinkgoT().TempDir(), filepath.Join(GinkgoT().TempDir(), "rest")

		Eventually(func() (*corev1.Pod, error) { return createPod(ctx, namespace, NewPod("before", nil)) }).WithTimeout(patience).Should(beMutated())
		stop, err := recording.Start(m, recording.Options{Dir: dir})
		Expect(err).NotTo(HaveOccurred())
		Expect(createPod(ctx, namespace, NewPod("first", nil))).To(beMutated())
		Expect(m.Diagnose(ctx).Err()).NotTo(HaveOccurred()) // whose call is no traffic
		Expect(stop(ctx)).To(Succeed())
		Expect(createPod(ctx, namespace, NewPod("between", nil))).To(beMutated())
		Expect(recorded(dir)).To(ConsistOf(ContainSubstring("-first-")))
		info, err := os.Stat(recorded(dir)[0])
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))

		_, err = recording.Start(m, recording.Options{Dir: rest})
		Expect(err).NotTo(HaveOccurred())
		Expect(createPod(ctx, namespace, NewPod("last", nil))).To(beMutated())
		m.Stop()
		Eventually(ended).WithTimeout(patience).Should(Receive(BeNil()))
		Expect(recorded(rest)).To(ConsistOf(ContainSubstring("-last-")), "the end of Run loses nothing")
		Expect(logs.FilterMessage("recording ended").All()).To(HaveLen(2), "and leaves no goroutine behind")

		h := eirinixtest.NewHarness(GinkgoTB(), addEnv{})
		for _, folder := range []string{dir, rest} {
			h.CheckReplay(folder)
			calls := h.Replay(folder)
			Expect(calls).To(ConsistOf(eirinixtest.BeAllowed()))
			Expect(calls[0].Patch).NotTo(BeEmpty())
			Expect(calls[0].Was.Patch).To(Equal(calls[0].Patch))
		}
	}, SpecTimeout(2*patience))

	It("is not previewed: its clients would reach the cluster", func(ctx SpecContext) {
		m := addEnvManager(urlOptions(newNamespace(ctx)))
		runManager(ctx, m)
		err := preview.Command(ctx, m, []string{"-"}, func(o *preview.Options) {
			o.Stdin, o.Stdout = strings.NewReader("{apiVersion: v1, kind: Pod, metadata: {name: a}}"), GinkgoWriter
		})
		Expect(err).To(MatchError("preview: the Manager is already running; use a Manager that has not been started"))
	}, SpecTimeout(2*patience))
})

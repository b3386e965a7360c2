package controlplane

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Options", func() {
	DescribeTable("request the same control plane if they are equal", func(change func(*Options), same bool) {
		one := Options{Assets: "/a", APIServerArgs: []string{"--v=1", "--w=2"}}
		other := one
		change(&other)
		Expect(other.Key() == one.Key()).To(Equal(same))
	},
		Entry("wherever the progress goes", func(o *Options) { o.Progress = os.Stderr }, true),
		Entry("not other binaries", func(o *Options) { o.Assets = "/b" }, false),
		Entry("not a controller manager", func(o *Options) { o.ControllerManager = true }, false),
		Entry("not other flags", func(o *Options) { o.APIServerArgs = []string{"--v=1 --w=2"} }, false),
		Entry("not logs elsewhere", func(o *Options) { o.LogDir = "/l" }, false),
	)

	It("request another control plane if the environment names other binaries", func() {
		before := Options{}.Key()
		GinkgoT().Setenv(assetsVariable, "/elsewhere")
		Expect(Options{}.Key()).NotTo(Equal(before))
	})
})

var _ = Describe("A control plane", func() {
	It("keeps its administrators out of etcd", Label("api-server"), func(ctx context.Context) {
		plane, err := New(ctx, Options{Assets: specAssets(ctx)})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(plane.Stop)
		Expect(getOK(ctx, plane.keys.etcdTLS, plane.etcdURL+"/health")).To(Succeed())
		Expect(getOK(ctx, plane.keys.adminTLS, plane.etcdURL+"/health")).NotTo(Succeed())
	})

	It("reports that no server has logged anything", func() {
		dir := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(dir, "etcd.log"), []byte("before\n"), 0o600)).To(Succeed())
		Expect(LogSizesIn(dir).LoggedSince(dir)).To(Equal("the control plane has logged nothing since the test began"))
	})
})

package eirinixtest

import (
	"context"
	"fmt"
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// helperVariable makes the test binary another program, see helper.
const helperVariable = "EIRINIXTEST_HELPER"

func TestMain(m *testing.M) {
	if role := os.Getenv(helperVariable); role != "" {
		helper(role)
	}

	os.Exit(Main(m))
}

// helper is what the test binary does when a spec runs it as a process to be killed.
func helper(role string) {
	if role == "control plane" {
		plane, err := NewControlPlane(context.Background(), ControlPlaneOptions{
			Assets: os.Getenv(assetsVariable), ControllerManager: true,
		})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}

		fmt.Println(plane.dir.path)
	}

	select {}
}

func TestEirinixtest(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "eirinixtest")
}

// specAssets returns the folder with the binaries; the first call may build them.
func specAssets(ctx context.Context) string {
	GinkgoHelper()

	assets, err := controlPlaneAssets(ctx, ControlPlaneOptions{ControllerManager: true}, &progressWriter{w: os.Stderr})
	Expect(err).NotTo(HaveOccurred())

	return assets
}

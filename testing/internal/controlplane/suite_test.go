package controlplane

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/spectest"
)

// helperVariable makes the test binary another program, see helper.
const helperVariable = "EIRINIXTEST_HELPER"

func TestMain(m *testing.M) {
	if role := os.Getenv(helperVariable); role != "" {
		helper(role)
	}
	os.Exit(m.Run())
}

// helper is the program that a spec starts to kill it.
func helper(role string) {
	if role == "control plane" {
		plane, err := New(context.Background(), Options{Assets: os.Getenv(assetsVariable), ControllerManager: true})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(plane.dir.path)
	}
	select {}
}

func TestControlPlane(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute) // of a busy machine
	RunSpecs(t, "testing/internal/controlplane")
}

// specAssets returns the folder with the binaries. The first call may build them.
func specAssets(ctx context.Context) string {
	GinkgoHelper()
	return spectest.Must(findAssets(ctx, Options{ControllerManager: true}, &progressWriter{w: os.Stderr}))
}

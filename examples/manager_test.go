package examples_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/examples/internal/programs"
)

// quiet logs into the output of the spec.
func quiet() *zap.SugaredLogger {
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.AddSync(GinkgoWriter), zapcore.InfoLevel)).Sugar()
}

// run runs a Manager of the spec's own until its end, and waits until it is ready.
func run(ctx context.Context, m *eirinix.ExtensionManager) {
	GinkgoHelper()
	ended := make(chan error, 1)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() { ended <- m.Run(running) }()
	DeferCleanup(func() {
		stop()
		Eventually(ended, programs.Patience).Should(Receive(Succeed()))
	})
	Eventually(m.Ready(), programs.Patience).Should(BeClosed())
}

package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

// The image holds the binary and an unprivileged process's needs, and nothing else;
// it does not run as root, and is the same each time.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "binary")
	require.NoError(t, os.WriteFile(binary, []byte("a static binary"), 0o700))
	platforms := []string{"linux/amd64=" + binary, "linux/arm64=" + binary}
	digests := map[string]bool{}
	for _, name := range []string{"a", "b"} {
		out := filepath.Join(dir, name)
		require.NoError(t, write(out, "0.1.0", platforms))
		index, err := layout.ImageIndexFromPath(out)
		require.NoError(t, err)
		require.NoError(t, validate.Index(index))
		digest, err := index.Digest()
		require.NoError(t, err)
		digests[digest.String()] = true
		manifest, err := index.IndexManifest()
		require.NoError(t, err)
		require.Len(t, manifest.Manifests, 2)
		for i, arch := range []string{"amd64", "arm64"} {
			require.Equal(t, arch, manifest.Manifests[i].Platform.Architecture)
			image, err := index.Image(manifest.Manifests[i].Digest)
			require.NoError(t, err)
			config, err := image.ConfigFile()
			require.NoError(t, err)
			require.Equal(t, "65532:65532", config.Config.User)
			require.Equal(t, []string{"/weir"}, config.Config.Entrypoint)
			require.Equal(t, arch, config.Architecture)
			require.Equal(t, "0.1.0", config.Config.Labels["org.opencontainers.image.version"])
			layers, err := image.Layers()
			require.NoError(t, err)
			require.Len(t, layers, 1, "an empty base")
			found := map[string]int64{}
			stream := mutate.Extract(image)
			files := tar.NewReader(stream)
			for {
				h, err := files.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				found[filepath.Clean(h.Name)] = h.Mode
				if filepath.Clean(h.Name) == "var/lib/weir" {
					require.Equal(t, user, h.Uid, "its own user writes there")
				} else {
					require.Zero(t, h.Uid, h.Name)
				}
			}
			require.NoError(t, stream.Close())
			require.Equal(t, map[string]int64{
				"etc": 0o755, "etc/group": 0o644, "etc/passwd": 0o644, "etc/weir": 0o755, "tmp": 0o1777,
				"var": 0o755, "var/lib": 0o755, "var/lib/weir": 0o700, "weir": 0o755,
			}, found)
		}
	}
	require.Len(t, digests, 1)
	require.ErrorContains(t, write(filepath.Join(dir, "a"), "0.1.0", platforms), "there already")
	require.Error(t, write(filepath.Join(dir, "c"), "0.1.0", []string{"linux/amd64=" + filepath.Join(dir, "nothing")}))
	require.NoDirExists(t, filepath.Join(dir, "c"))
}

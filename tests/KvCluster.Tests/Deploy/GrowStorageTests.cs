using System.Runtime.Versioning;
using KvCluster.Processes;

namespace KvCluster.Tests.Deploy;

/// <summary>
/// deploy/kubernetes/grow-storage, with a kubectl that has one release of two nodes in files; only the nightly script runs it with a Kubernetes. Before there
/// was such a script, nothing made volumes larger: an upgrade with another node.storage.size was forbidden.
/// </summary>
[UnsupportedOSPlatform("windows")]
[Trait("Turn", "5")]
public sealed class GrowStorageTests : IDisposable
{
    // Each file is one thing that Kubernetes has. "calls" has the commands that change something, and with a file "broken" no StatefulSet can be created.
    private const string Kubectl =
        """
        #!/usr/bin/env bash
        cd "$STUB"
        file=
        for ((i = 1; i < $#; i++)); do
          following=$((i + 1))
          [[ ${!i} != -f ]] || file=${!following}
        done
        case " $* " in
          *" patch pvc "* | *" delete "* | *" create "*) echo "$*" >>calls ;;
        esac
        case " $* " in
          *" get statefulset store-kvcluster-node "*) cat statefulset ;;
          *" get statefulset "*metadata.name*) [[ ! -e statefulset ]] || printf store-kvcluster-node ;;
          *" get statefulset "*storage*) sed -n 's/.*"storage": "\(.*\)".*/\1/p' statefulset ;;
          *" get storageclass fast "*) cat class ;;
          *" get pvc "*capacity*) awk '{ print $1, $3 }' claims ;;
          *" get pvc "*) awk '{ print $1, $2, "fast" }' claims ;;
          *" get pods "*) awk '{ printf "%s ", $1 }' claims ;;
          *" get configmap "*" -o name "*) [[ ! -e kept ]] || echo configmap/kept ;;
          *" get configmap "*) cat kept ;;
          *" patch --local "*replace*) sed "s/\"storage\": \".*\"/\"storage\": \"$(sed 's/.*"value": "\(.*\)"}.*/\1/' <<<"$*")\"/" "$file" ;;
          *" patch --local "*) cat "$file" ;;
          *" patch pvc data-1 "*) sed -i "s/^data-1 .*/data-1 $(sed 's/.*"storage": "\(.*\)".*/\1/' <<<"$*") 40Gi/" claims ;;
          *" patch pvc data-2 "*) sed -i "s/^data-2 .*/data-2 $(sed 's/.*"storage": "\(.*\)".*/\1/' <<<"$*") 40Gi/" claims ;;
          *" create configmap "*) cp "$(sed 's/.*--from-file=//' <<<"$*")" kept ;;
          *" delete configmap "*) rm -f kept ;;
          *" delete statefulset "*) rm statefulset ;;
          *" create -f "*) [[ ! -e broken ]] && cp "$file" statefulset ;;
        esac

        """;

    private readonly TemporaryDirectory _folder = new();

    public GrowStorageTests()
    {
        Write("kubectl", Kubectl);
        Write("class", "true");
        Write("claims", "data-1 20Gi 20Gi\ndata-2 20Gi 20Gi\n");
        Write("statefulset", """{"storage": "20Gi"}""");
        File.SetUnixFileMode(PathOf("kubectl"), UnixFileMode.UserRead | UnixFileMode.UserExecute);
    }

    public void Dispose() => _folder.Dispose();

    [ToolFact("bash", "awk")]
    public async Task Grow_WithAClassThatAllowsIt_EnlargesClaimsAndThenReplacesTheStatefulSetWithoutItsPods()
    {
        var (exitCode, output, error) = await GrowAsync("40Gi");

        Assert.True(exitCode == 0, error);
        Assert.Equal("data-1 40Gi 40Gi\ndata-2 40Gi 40Gi\n", Read("claims"));
        Assert.Equal("""{"storage": "40Gi"}""", Read("statefulset"));
        Assert.Equal(["patch pvc", "patch pvc", "delete configmap", "create configmap", "delete statefulset", "create -f", "delete configmap"], Calls);
        Assert.Contains("--cascade=orphan", Read("calls"), StringComparison.Ordinal);
        Assert.False(Exists("kept"));
        Assert.Contains("claim data-2: from 20Gi to 40Gi", output, StringComparison.Ordinal);
        Assert.Contains("--reset-then-reuse-values --set node.storage.size=40Gi", output, StringComparison.Ordinal);
    }

    /// <summary>Between the removal and the creation nothing replaces a pod that ends, so whoever is interrupted there must be able to go on.</summary>
    [ToolFact("bash", "awk")]
    public async Task Grow_InterruptedBeforeTheCreation_GoesOnFromWhatItKept()
    {
        Write("broken", "");
        var (exitCode, _, error) = await GrowAsync("40Gi");
        Assert.Equal(1, exitCode);
        Assert.Contains("is not created again yet. Its pods run on, and nothing replaces one that ends. Run this again.", error, StringComparison.Ordinal);
        Assert.False(Exists("statefulset"));

        File.Delete(PathOf("broken"));
        (exitCode, var output, error) = await GrowAsync("40Gi");

        Assert.True(exitCode == 0, error);
        Assert.Equal("""{"storage": "40Gi"}""", Read("statefulset"));
        Assert.False(Exists("kept"));
        Assert.Contains("claim data-1: has 40Gi already", output, StringComparison.Ordinal);
    }

    [ToolFact("bash", "awk")]
    public async Task Grow_Again_ChangesNothing()
    {
        Assert.Equal(0, (await GrowAsync("40Gi")).ExitCode);
        File.Delete(PathOf("calls"));

        var (exitCode, _, error) = await GrowAsync("40960Mi");

        Assert.True(exitCode == 0, error);
        Assert.Equal(["delete configmap"], Calls);
    }

    [ToolTheory("bash", "awk")]
    [InlineData("", "40Gi", "the storage class fast does not allow volumes to grow")]
    [InlineData("true", "10Gi", "the volumes have 20Gi, and none can shrink to 10Gi")]
    [InlineData("true", "40GB", "'40GB' is no size")]
    public async Task Grow_WhatCannotBe_IsRefusedBeforeAnyChange(string allowed, string size, string message)
    {
        Write("class", allowed);

        var (exitCode, _, error) = await GrowAsync(size);

        Assert.Equal(1, exitCode);
        Assert.Contains(message, error, StringComparison.Ordinal);
        Assert.EndsWith("Nothing was changed.", error, StringComparison.Ordinal);
        Assert.False(Exists("calls"));
    }

    [ToolFact("bash", "awk")]
    public async Task Grow_WithoutAStatefulSet_SaysSo()
    {
        File.Delete(PathOf("statefulset"));

        var (exitCode, _, error) = await GrowAsync("40Gi");

        Assert.Equal(1, exitCode);
        Assert.Contains("there is no StatefulSet with the labels", error, StringComparison.Ordinal);
    }

    /// <summary>Claims and StatefulSet can be done while a driver has not enlarged the file systems, which only shows in the claims' capacity.</summary>
    [ToolFact("bash", "awk")]
    public async Task Grow_OfVolumesThatDoNotGrow_EndsWithTheirNames()
    {
        Write("claims", "data-1 40Gi 40Gi\ndata-2 40Gi 20Gi\n");

        var (exitCode, _, error) = await GrowAsync("40Gi", "--timeout", "0");

        Assert.Equal(1, exitCode);
        Assert.Contains("data-2 has 20Gi", error, StringComparison.Ordinal);
        Assert.DoesNotContain("data-1", error, StringComparison.Ordinal);
    }

    // The first two words of each command that changed something.
    private IEnumerable<string> Calls =>
        Read("calls").Split('\n', StringSplitOptions.RemoveEmptyEntries).Select(static call => string.Join(' ', call.Split(' ').Skip(2).Take(2)));

    private Task<(int ExitCode, string Output, string Error)> GrowAsync(string size, params IEnumerable<string> more) => Tools.RunAsync(
        "env",
        [
            $"STUB={_folder.Path}", $"PATH={_folder.Path}:{Environment.GetEnvironmentVariable("PATH")}",
            Path.Combine(Tools.Repository(), "deploy", "kubernetes", "grow-storage"), "store", size, "--namespace", "data", .. more,
        ]);

    private string PathOf(string name) => Path.Combine(_folder.Path, name);

    private bool Exists(string name) => File.Exists(PathOf(name));

    private string Read(string name) => File.ReadAllText(PathOf(name));

    private void Write(string name, string text) => File.WriteAllText(PathOf(name), text);
}

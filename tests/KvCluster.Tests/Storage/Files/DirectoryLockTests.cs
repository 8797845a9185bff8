using System.Diagnostics;
using KvCluster.Storage.Files;

namespace KvCluster.Tests.Storage.Files;

/// <summary>
/// Two processes had one directory open, and an answered write was missing: where file locking was switched off in the runtime, or its call failed, nothing was
/// locked and nobody was told.
/// </summary>
[Collection(AloneCollection.Name)]
public sealed class DirectoryLockTests : IDisposable
{
    private readonly TemporaryDirectory _directory = new();

    private string LockFile => Path.Combine(_directory.Path, DirectoryLock.FileName);

    public void Dispose() => _directory.Dispose();

    [Fact]
    public async Task Take_FileLockingIsSwitchedOffInTheOtherProcess_IsRefusedThere()
    {
        var replica = Path.Combine(_directory.Path, "shards", "1");
        Directory.CreateDirectory(replica);
        var (code, error) = await CheckAsync(replica);
        Assert.DoesNotContain("in use", error, StringComparison.Ordinal);
        using (DirectoryLock.Take(_directory.Path))
        {
            (code, error) = await CheckAsync(replica);
            Assert.NotEqual(0, code);
            Assert.Contains($"in use by process {Environment.ProcessId}", error, StringComparison.Ordinal);
        }
        // A process of an earlier version, with the runtime's lock.
        using (new FileStream(LockFile, FileMode.Open, FileAccess.ReadWrite, FileShare.None))
        {
            (_, error) = await CheckAsync(replica);
            Assert.Contains("in use", error, StringComparison.Ordinal);
        }
    }

    [Fact]
    public void Take_BesideAnEarlierVersion_ExcludesIt()
    {
        using (DirectoryLock.Take(_directory.Path))
        {
            Assert.Throws<IOException>(() => new FileStream(LockFile, FileMode.OpenOrCreate, FileAccess.ReadWrite, FileShare.None));
            Assert.Throws<DirectoryInUseException>(() => DirectoryLock.Take(_directory.Path));
        }
        using (new FileStream(LockFile, FileMode.OpenOrCreate, FileAccess.ReadWrite, FileShare.None))
            Assert.Throws<DirectoryInUseException>(() => DirectoryLock.Take(_directory.Path));
        DirectoryLock.Take(_directory.Path).Dispose();
    }

    /// <summary>The runtime takes every error but one for a lock.</summary>
    [AnsweredCallsFact]
    public void Take_FileSystemHasNoLocks_IsRefused()
    {
        var refused = AnsweredCalls.Run([new CallFilter(CallName.Lock)], static _ => CallAnswer.Failure(LibC.ErrorNotSupported), () =>
        {
            var failure = Assert.Throws<StorageIoException>(() => DirectoryLock.Take(_directory.Path));
            Assert.Contains("errno 95", failure.Message, StringComparison.Ordinal);
            Assert.Contains("not opened", failure.Message, StringComparison.Ordinal);
        });
        Assert.NotEmpty(refused);
        DirectoryLock.Take(_directory.Path).Dispose();
    }

    /// <summary>Runs a tool of another process on a replica, with the runtime's file locking switched off.</summary>
    private static async Task<(int Code, string Error)> CheckAsync(string replica)
    {
        var start = new ProcessStartInfo(
            Environment.GetEnvironmentVariable("DOTNET_HOST_PATH") ?? "dotnet",
            [Path.Combine(AppContext.BaseDirectory, "kv-node.dll"), "storage", "check", replica])
        {
            RedirectStandardError = true,
            RedirectStandardOutput = true,
        };
        start.Environment["DOTNET_SYSTEM_IO_DISABLEFILELOCKING"] = "1";
        using var process = Process.Start(start)!;
        var output = process.StandardOutput.ReadToEndAsync();
        var error = await process.StandardError.ReadToEndAsync();
        await process.WaitForExitAsync();
        return (process.ExitCode, error + await output);
    }
}

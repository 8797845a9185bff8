using System.Diagnostics;
using System.Runtime.Versioning;
using KvCluster.Storage;

namespace KvCluster.PublicTests;

/// <summary>
/// Directories that a process may not use, because they belong to another user. The administrator may use everything, so each is opened by a process of the
/// user "nobody", which only the administrator can start: elsewhere these tests are skipped.
/// </summary>
[UnsupportedOSPlatform("windows")]
public sealed class OtherUserTests : StoreTest
{
    private const UnixFileMode OnlyRead = UnixFileMode.UserRead | UnixFileMode.GroupRead | UnixFileMode.OtherRead;
    private const UnixFileMode OnlyEnter = OnlyRead | UnixFileMode.UserExecute | UnixFileMode.GroupExecute | UnixFileMode.OtherExecute;
    private const UnixFileMode WriteFile = OnlyRead | UnixFileMode.UserWrite | UnixFileMode.GroupWrite | UnixFileMode.OtherWrite;
    private const UnixFileMode WriteDirectory = WriteFile | OnlyEnter;
    private const UnixFileMode Closed = UnixFileMode.UserRead | UnixFileMode.UserWrite | UnixFileMode.UserExecute;

    private string Lock => Path.Combine(Folder, "LOCK");

    [OtherUserFact]
    public async Task Open_OfADirectoryThatMayOnlyBeRead_IsATypedErrorAndChangesNothing()
    {
        await CreateAsync();
        Permit(OnlyEnter, OnlyRead);
        await CheckRefusedAsync(Lock);
    }

    [OtherUserFact]
    public async Task Open_OfFilesThatMayOnlyBeRead_IsATypedErrorAndChangesNothing()
    {
        await CreateAsync();
        Permit(OnlyEnter, OnlyRead);
        File.SetUnixFileMode(Folder, WriteDirectory);
        File.SetUnixFileMode(Lock, WriteFile);
        await CheckRefusedAsync(Path.Combine(Folder, "store"));
    }

    /// <summary>Each file of the engine in turn, the first it opens and the last: what was opened before it is as it was.</summary>
    [OtherUserFact]
    public async Task Open_OfOneFileThatMayOnlyBeRead_IsATypedErrorAndChangesNothing()
    {
        await CreateAsync();
        foreach (var name in (string[])["control", "data"])
        {
            var file = Directory.EnumerateFiles(Folder, name, SearchOption.AllDirectories).Single();
            Permit(WriteDirectory, WriteFile);
            File.SetUnixFileMode(file, OnlyRead);
            await CheckRefusedAsync(file);
        }
    }

    [OtherUserFact]
    public async Task Open_OfADirectoryThatMayNotBeEntered_IsATypedErrorAndChangesNothing()
    {
        await CreateAsync();
        Permit(WriteDirectory, WriteFile);
        File.SetUnixFileMode(Folder, Closed);
        await CheckRefusedAsync(Folder);
    }

    [OtherUserFact]
    public async Task Open_OfANewDirectoryWhereNoneMayBeCreated_IsATypedErrorAndCreatesNothing()
    {
        Assert.Contains(Folder, await RefusalAsync(Folder), StringComparison.Ordinal);
        Assert.False(Directory.Exists(Folder));
        Directory.CreateDirectory(Folder, OnlyEnter);
        Assert.Contains(Folder, await RefusalAsync(Folder), StringComparison.Ordinal);
        Assert.Empty(Directory.EnumerateFileSystemEntries(Folder));
    }

    /// <summary>So the refusals above are those of the directories.</summary>
    [OtherUserFact]
    public async Task Open_OfADirectoryThatMayBeWritten_Succeeds()
    {
        await CreateAsync();
        Permit(WriteDirectory, WriteFile);
        Assert.Equal("open", await TryAsync(Folder));
        Directory.CreateDirectory(Beside("new"));
        File.SetUnixFileMode(Beside("new"), WriteDirectory);
        Assert.Equal("open", await TryAsync(Beside("new")));
    }

    private async Task CreateAsync()
    {
        await using var store = KvStore.Open(Folder);
        await PutAsync(store, await store.CreateTreeAsync("t"), "a");
        await store.CheckpointAsync();
    }

    private void Permit(UnixFileMode directories, UnixFileMode files)
    {
        File.SetUnixFileMode(Folder, directories);
        foreach (var entry in Directory.EnumerateFileSystemEntries(Folder, "*", SearchOption.AllDirectories))
            File.SetUnixFileMode(entry, Directory.Exists(entry) ? directories : files);
    }

    // The error names what could not be used, and what is there stays as it was.
    private async Task CheckRefusedAsync(string named)
    {
        var before = FilesOf(Folder);
        Assert.Contains(named, await RefusalAsync(Folder), StringComparison.Ordinal);
        Assert.Equal(before, FilesOf(Folder));
        await using var store = KvStore.Open(Folder);
        Assert.Equal("a", Read(store, store.Tree("t"), "a"));
    }

    // One line of one type, which says what happened and what to do.
    private async Task<string> RefusalAsync(string directory)
    {
        var answer = await TryAsync(directory);
        Assert.StartsWith($"{nameof(KvStoreDiskException)}: The store was not opened.", answer, StringComparison.Ordinal);
        Assert.DoesNotContain('\n', answer);
        Assert.Contains("Check the rights", answer, StringComparison.Ordinal);
        return answer;
    }

    // The other user may be unable to read where the tests were built, but not the copy.
    private async Task<string> TryAsync(string directory)
    {
        var copy = Beside("program");
        if (!Directory.Exists(copy))
        {
            File.SetUnixFileMode(Path.GetDirectoryName(copy)!, OnlyEnter | UnixFileMode.UserWrite);
            Directory.CreateDirectory(copy, OnlyEnter | UnixFileMode.UserWrite);
            foreach (var file in Directory.EnumerateFiles(AppContext.BaseDirectory).Where(static file => Path.GetExtension(file) is ".dll" or ".json"))
                File.Copy(file, Path.Combine(copy, Path.GetFileName(file)));
        }
        var (exitCode, output) = await OtherUserFactAttribute.RunAsync(
            "dotnet", "exec", Path.Combine(copy, Path.GetFileName(typeof(Program).Assembly.Location)), "try", directory);
        Assert.True(exitCode == 0, output);
        return output;
    }

    /// <summary>A test that starts a process of another user. It is skipped where that is not possible.</summary>
    [AttributeUsage(AttributeTargets.Method)]
    private sealed class OtherUserFactAttribute : FactAttribute
    {
        // "nobody" on Debian and its relatives; on others nobody has this id either.
        private const string Nobody = "65534";
        private static readonly Lazy<string?> Missing = new(WhyMissing);

        public OtherUserFactAttribute() => Skip = Missing.Value;

        /// <summary>Runs a program as the other user until it exits.</summary>
        public static async Task<(int ExitCode, string Output)> RunAsync(params string[] command)
        {
            using var process = Process.Start(new ProcessStartInfo("setpriv", [$"--reuid={Nobody}", $"--regid={Nobody}", "--clear-groups", .. command])
            {
                RedirectStandardOutput = true, RedirectStandardError = true,
            })!;
            var (output, error) = (process.StandardOutput.ReadToEndAsync(), process.StandardError.ReadToEndAsync());
            await process.WaitForExitAsync();
            return (process.ExitCode, (await output + await error).Trim());
        }

        private static string? WhyMissing()
        {
            if (!OperatingSystem.IsLinux() || !Environment.IsPrivilegedProcess)
                return "needs Linux and root, which alone may start a process of another user";
            try
            {
                // Attributes are made on a thread that the runner's own continuations need.
                var (exitCode, output) = Task.Run(static () => RunAsync("sh", "-c", $"test -x '{Path.GetTempPath()}' && dotnet --list-runtimes"))
                    .GetAwaiter().GetResult();
                return exitCode == 0 ? null : $"another user cannot run dotnet here, or enter {Path.GetTempPath()}: {output}";
            }
            catch (System.ComponentModel.Win32Exception missing)
            {
                return $"setpriv cannot be started: {missing.Message}";
            }
        }
    }
}

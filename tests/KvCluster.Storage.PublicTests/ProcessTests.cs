using KvCluster.Processes;
using KvCluster.Storage;

namespace KvCluster.PublicTests;

/// <summary>One directory and more than one process.</summary>
public sealed class ProcessTests : StoreTest
{
    [Fact]
    public async Task Open_OfADirectoryThatAnotherProcessHas_NamesThatProcess()
    {
        using var other = await OtherProcess.StartAsync("hold", Folder);
        var refused = Assert.Throws<KvStoreInUseException>(() => KvStore.Open(Folder));
        if (OperatingSystem.IsLinux())
        {
            Assert.StartsWith($"{other.Id} (dotnet) on {Environment.MachineName}", refused.Holder, StringComparison.Ordinal);
            Assert.Contains($"process {other.Id} ", refused.Message, StringComparison.Ordinal);
        }
        await other.KillAsync();
        await using var store = KvStore.Open(Folder);
        Assert.Equal(["numbers"], store.TreeNames);
    }

    [Fact]
    public async Task Open_OfADirectoryThatThisProcessHas_IsRefusedUntilItIsDisposedOf()
    {
        await using (KvStore.Open(Folder))
        {
            Assert.Throws<KvStoreInUseException>(() => KvStore.Open(Folder));
            Assert.Throws<KvStoreInUseException>(() => KvStore.Open(Path.Combine(Folder, ".")));
        }
        await KvStore.Open(Folder).DisposeAsync();
    }

    [Fact]
    public async Task Open_AfterAWritingProcessWasKilled_HasEveryAcknowledgedWriteAndWholeBatches()
    {
        for (var life = 0; life < 2; life++)
        {
            var acknowledged = new List<int>();
            using (var other = await OtherProcess.StartAsync("write", Folder))
            {
                for (var count = 0; count < 500; count++)
                    acknowledged.Add(await other.NextNumberAsync());
                acknowledged.AddRange(await other.KillAsync());
            }
            await using var store = KvStore.Open(Folder);
            var tree = store.Tree("numbers");
            using var snapshot = store.OpenSnapshot();
            foreach (var number in acknowledged)
                Assert.Equal((200, 100), (snapshot.Get(tree, Program.KeyOf(number))?.Length, snapshot.Get(tree, [.. Program.KeyOf(number), 1])?.Length));
            var keys = 0;
            foreach (var (key, _) in snapshot.Scan(tree))
                keys += key.Length == sizeof(int) ? 1 : -1;
            Assert.Equal(0, keys);
        }
    }

    /// <summary>
    /// Files were created first, and then a call was found to be missing. The other process finds a C library without any call beside its program, as it would
    /// one that is not glibc.
    /// </summary>
    [ToolFact("cc")]
    public async Task Open_WhereTheCLibraryLacksTheEnginesCalls_CreatesNothing()
    {
        var program = Directory.CreateDirectory(Beside("program")).FullName;
        foreach (var file in Directory.EnumerateFiles(AppContext.BaseDirectory))
            File.Copy(file, Path.Combine(program, Path.GetFileName(file)));
        await File.WriteAllTextAsync(Beside("none.c"), "int none;\n");
        var (compiled, _, error) = await Tools.RunAsync("cc", "-shared", "-nostdlib", "-o", Path.Combine(program, "libc.so"), Beside("none.c"));
        Assert.True(compiled == 0, error);
        var tests = Path.Combine(program, Path.GetFileName(typeof(Program).Assembly.Location));
        var (_, told, _) = await Tools.RunAsync("dotnet", "exec", tests, "try", Folder);
        Assert.StartsWith("PlatformNotSupportedException: Data can be stored on Linux with glibc", told, StringComparison.Ordinal);
        Assert.False(Path.Exists(Folder));
    }
}

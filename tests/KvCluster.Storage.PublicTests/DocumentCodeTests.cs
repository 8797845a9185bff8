using System.Text;
using KvCluster.Storage;

namespace KvCluster.PublicTests;

/// <summary>The C# of the store's page, of which the first lines are also in README.md. `KvCluster.Tests` compares it with the pages.</summary>
public sealed class DocumentCodeTests : StoreTest
{
    [Fact]
    public async Task Page_DoesWhatItSays()
    {
        await using var store = KvStore.Open(Folder);
        var orders = await store.CreateTreeAsync("orders"); // or finds it
        var written = await store.WriteAsync(new KvBatch() // all or nothing, and on the disk when answered
            .Put(orders, "2026/11/0001"u8, "three apples"u8)
            .Put(orders, "2026/11/0002"u8, "two pears"u8));
        await store.WriteAsync(new KvBatch().IfEtag(orders, "2026/11/0002"u8, written.Etag).Delete(orders, "2026/10/0417"u8)); // only if nobody changed it
        using var snapshot = store.OpenSnapshot();
        foreach (var (key, value) in snapshot.ScanPrefix(orders, "2026/11/"u8))
            Console.WriteLine($"{Encoding.UTF8.GetString(key)}: {Encoding.UTF8.GetString(value)}");
        Assert.Equal(("three apples", "two pears"), (Read(snapshot, orders, "2026/11/0001"), Read(snapshot, orders, "2026/11/0002")));

        await store.WriteAsync(new KvBatch().SetAdd(orders, "by-fruit/apple"u8, "2026/11/0001"u8).SetAdd(orders, "by-fruit/apple"u8, "2026/11/0007"u8));
        using var later = store.OpenSnapshot();
        foreach (var member in later.GetSet(orders, "by-fruit/apple"u8).Members(from: "2026/11/0002"u8))
            Console.WriteLine(Encoding.UTF8.GetString(member));
        Assert.Equal(2, later.GetSet(orders, "by-fruit/apple"u8).Count);
    }
}

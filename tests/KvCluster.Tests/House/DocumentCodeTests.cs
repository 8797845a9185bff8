using System.Text.Json;
using System.Text.RegularExpressions;
using Google.Protobuf.Reflection;
using KvCluster.Client;
using KvCluster.Testing;

namespace KvCluster.Tests.House;

/// <summary>
/// What is in fences of the documents. Their C# is in this file, too, or in another one that ends with its name, where it is compiled and run. A test compares
/// the texts paragraph by paragraph, without indentation. Lines that open a store are left out, because a test has another one.
/// </summary>
public sealed partial class DocumentCodeTests
{
    private static readonly Lazy<string> Tested = new(static () => string.Concat(House.TextFiles()
        .Where(static path => path.EndsWith("DocumentCodeTests.cs", StringComparison.Ordinal)).Select(static path => Lines(House.Read(path)))));

    public static TheoryData<string> Pages => new(House.TextFiles()
        .Where(static path => path.EndsWith(".md", StringComparison.Ordinal) && Block().IsMatch(House.Read(path))));

    [Theory]
    [MemberData(nameof(Pages))]
    public void BlocksOfCSharp_AreInTests(string page)
    {
        var paragraphs = Block().Matches(House.Read(page)).SelectMany(static block => block.Groups[1].Value.Split("\n\n")).Select(Lines);
        // Assert.Empty would truncate them.
        var missing = string.Concat(paragraphs.Where(static paragraph => !Tested.Value.Contains(paragraph, StringComparison.Ordinal)));
        Assert.True(missing.Length == 0, $"No test has these lines as they are:{missing}");
    }

    [Fact]
    public async Task Start_DoesWhatItSays()
    {
        IKvClient store = new InMemoryKvClient();
        await store.PutAsync("greeting", "hello");
        var greeting = await store.GetAsync("greeting");
        Console.WriteLine(greeting.Value);

        for (var time = 0; time < 2; time++)
        {
            var put = await store.TryPutAsync("greeting", "good morning", KvCondition.EtagEquals(greeting.Etag));
            if (!put.Succeeded)
                Console.WriteLine($"Somebody else has changed it: its etag is {put.Failed.Etag} now.");
            Assert.Equal(time == 0, put.Succeeded);
        }
        Assert.Equal("good morning", (await store.GetAsync("greeting")).Value.ToUtf8String());

        await store.UpdateAsync("visits", visits => KvValue.FromInt64((visits?.ToInt64() ?? 0) + 1));
        Assert.Equal(1, (await store.GetAsync("visits")).Value.ToInt64());

        await store.WriteAsync(new KvWrite()
            .If(KvCondition.Absent("orders/17"))
            .Put("orders/17", "two pears")
            .Put("customers/anna/last", "17"));
        Assert.Equal("17", (await store.GetAsync("customers/anna/last")).Value.ToUtf8String());
    }

    [Fact]
    public async Task DesigningKeys_DoesWhatItSays()
    {
        IKvClient store = new InMemoryKvClient();
        var (customer, id, placed) = ("ann", 17, DateTimeOffset.UnixEpoch);
        // The orders of a customer, newest month last.
        var order = KvKey.Of("orders", customer, 2026, 11, id);
        await store.PutAsync(order, "two pears");
        await foreach (var entry in store.ScanAsync(new KvScan { Prefix = KvKey.Of("orders", customer, 2026) }))
            Console.WriteLine(entry.Value);
        Assert.Equal(1, await store.CountAsync(KvKey.Of("orders", customer)));
        Assert.Equal(0, await store.CountAsync(KvKey.Of("orders", customer[..2])));

        await store.WriteAsync(new KvWrite()
            .Put(KvKey.Of("orders", customer, 2026, 11, id), "two pears")
            .Put(KvKey.Of("orders-by-day", placed, id), customer));
        Assert.Equal(customer, (await store.GetAsync(KvKey.Of("orders-by-day", placed, id))).Value.ToUtf8String());
    }

    [Fact]
    public async Task Consistency_DoesWhatItSays()
    {
        IKvClient store = new InMemoryKvClient();
        await store.PutAsync("limit", "10");
        var newest = await store.GetAsync("limit"); // sees the put
        var perhaps = await store.GetAsync("limit", KvReadMode.Stale);
        Console.WriteLine($"{newest.Value}; {perhaps.Age} ago perhaps {perhaps.Value}");
        Assert.Equal("10", newest.Value.ToUtf8String());

        await store.PutAsync("orders/17", "two pears");
        string? token = null;
        var list = new KvList { Prefix = "orders/", Limit = 100, NewerSnapshots = true };
        var page = await store.ListAsync(list, token); // token: of the request, or null for the first page
        foreach (var entry in page.Entries)
            Console.WriteLine($"{entry.Key}: {entry.Value}");
        if (page.NextToken is not null)
            Console.WriteLine($"/orders?token={page.NextToken}");
        Assert.Equal("orders/17", Assert.Single(page.Entries).Key.ToUtf8String());
    }

    /// <summary>
    /// A connection that breaks is UNAVAILABLE to gRPC, also after a change was sent. So what is repeated is reads, and calls of sessions that do no harm when
    /// they are made twice.
    /// </summary>
    [Fact]
    public void ServiceConfig_RepeatsReads_AndNoChange()
    {
        using var config = JsonDocument.Parse(House.Read("docs/service-config.json"));
        var repeated = config.RootElement.GetProperty("methodConfig").EnumerateArray()
            .Where(static one => one.TryGetProperty("retryPolicy", out _)).SelectMany(static one => one.GetProperty("name").EnumerateArray()).ToList();
        var service = V1.KvReflection.Descriptor.Services.Single();
        Assert.All(repeated, name => Assert.Equal(service.FullName, name.GetProperty("service").GetString()));
        string[] wanted =
        [
            .. service.Methods.Where(static method => method.GetOptions()?.IdempotencyLevel == MethodOptions.Types.IdempotencyLevel.NoSideEffects)
                .Select(static method => method.Name),
            "OpenSession", "KeepAlive",
        ];
        Assert.Equal(
            wanted.Order(StringComparer.Ordinal), repeated.Select(static name => name.GetProperty("method").GetString()!).Order(StringComparer.Ordinal));
    }

    // Begins and ends with a line feed, so that only whole lines are the same.
    private static string Lines(string text) => "\n" + OpeningLine().Replace(
        string.Concat(text.Split('\n').Select(static line => line.Trim()).Where(static line => line.Length > 0).Select(static line => line + "\n")), "");

    [GeneratedRegex("^```csharp\n(.*?)^```", RegexOptions.Multiline | RegexOptions.Singleline)]
    private static partial Regex Block();

    [GeneratedRegex(@"^(using [\w.]+;|await using var store = .*)\n", RegexOptions.Multiline)]
    private static partial Regex OpeningLine();
}

using System.Reflection;
using KvCluster.Client;

namespace KvCluster.Tests.Client;

/// <summary>The interfaces of the client and its parts, which programs take so that their tests can pass a mock.</summary>
public sealed class ClientInterfaceTests
{
    // The first is of operators, and the others belong to whoever makes a client.
    private static readonly string[] OfTheOwner = ["get_Admin", nameof(IDisposable.Dispose), nameof(IAsyncDisposable.DisposeAsync)];

    [Theory]
    [InlineData(typeof(KvClient), typeof(IKvClient))]
    [InlineData(typeof(KvSets), typeof(IKvSets))]
    [InlineData(typeof(KvSessions), typeof(IKvSessions))]
    [InlineData(typeof(KvBulkLoad), typeof(IKvBulkLoad))]
    public void Interface_HasEveryCall_WithTheSameParametersAndDefaults(Type implementation, Type contract) =>
        Assert.Equal(CallsOf(implementation), CallsOf(contract));

    [Fact]
    public void Results_OfAllCalls_HavePublicConstructors()
    {
        var results = new HashSet<Type>();
        Type[] contracts = [typeof(IKvClient), typeof(IKvSets), typeof(IKvSessions), typeof(IKvBulkLoad)];
        foreach (var call in contracts.SelectMany(static contract => contract.GetMethods()))
            Add(results, call.ReturnType);
        Assert.Contains(typeof(KvWatchMessage), results);
        Assert.Contains(typeof(KvEvent), results);
        Assert.All(results.Where(static type => type.IsClass), static type => Assert.NotEmpty(type.GetConstructors()));
    }

    [Fact]
    public void Token_OfAMadeMessage_IsTheOneThatWasSet() =>
        Assert.Equal("here", new KvWatchMessage(default, [], false) { Token = "here" }.Token);

    private static IEnumerable<string> CallsOf(Type type) => type.GetMethods(BindingFlags.Public | BindingFlags.Instance | BindingFlags.DeclaredOnly)
        .Where(static call => !OfTheOwner.Contains(call.Name))
        .Select(static call => $"{call.Name}({string.Join(", ", call.GetParameters().Select(TextOf))})")
        .Order(StringComparer.Ordinal);

    private static string TextOf(ParameterInfo parameter) =>
        $"{parameter.ParameterType} {parameter.Name}{(parameter.HasDefaultValue ? $" = {parameter.RawDefaultValue}" : "")}";

    // The type, what it is made of, and what its properties are.
    private static void Add(HashSet<Type> results, Type type)
    {
        foreach (var argument in type.GetGenericArguments())
            Add(results, argument);
        if (type.Namespace != typeof(KvClient).Namespace || !results.Add(type))
            return;
        foreach (var property in type.GetProperties())
            Add(results, property.PropertyType);
    }
}

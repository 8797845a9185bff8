using System.Reflection;
using System.Runtime.ExceptionServices;
using System.Runtime.Loader;

namespace KvCluster.Tests.Storage.Schedules;

/// <summary>
/// The engine a second time in this process, with switch points (<see cref="EngineRewriting"/>), and the tests once more beside it, whose scenarios use it. It
/// is made of the assemblies that lie beside the tests, so it has the mistakes that these have.
/// </summary>
internal sealed class SteppedEngine : AssemblyLoadContext
{
    private static readonly Lazy<Assembly> _tests = new(static () => new SteppedEngine().LoadFromAssemblyName(typeof(SteppedEngine).Assembly.GetName()));

    private SteppedEngine()
        : base("stepped")
    {
    }

    /// <summary>Calls a static method over the stepped engine, and passes on what it returns or throws.</summary>
    /// <param name="test">The method as the caller knows it, which is that over the ordinary engine.</param>
    /// <param name="arguments">Its arguments, of types of the framework.</param>
    public static T Call<T>(Delegate test, params object[] arguments)
    {
        var method = _tests.Value.GetType(test.Method.DeclaringType!.FullName!, throwOnError: true)!
            .GetMethod(test.Method.Name, BindingFlags.Static | BindingFlags.Public | BindingFlags.NonPublic)!;
        try
        {
            return (T)method.Invoke(null, arguments)!;
        }
        catch (TargetInvocationException exception)
        {
            ExceptionDispatchInfo.Throw(exception.InnerException!);
            throw;
        }
    }

    /// <inheritdoc/>
    protected override Assembly? Load(AssemblyName name)
    {
        var tests = typeof(SteppedEngine).Assembly;
        if (name.Name == tests.GetName().Name)
            return LoadFromAssemblyPath(tests.Location);
        if (name.Name?.StartsWith("KvCluster.", StringComparison.Ordinal) != true && name.Name?.StartsWith("kv-", StringComparison.Ordinal) != true)
            return null;
        using var rewritten = EngineRewriting.Rewrite(Path.Combine(Path.GetDirectoryName(tests.Location)!, $"{name.Name}.dll"));
        return LoadFromStream(rewritten);
    }
}

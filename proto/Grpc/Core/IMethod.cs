namespace Grpc.Core;

/// <summary>A method without its message types.</summary>
internal interface IMethod
{
    MethodType Type { get; }

    /// <summary>Package and service, <c>kvcluster.v1.Kv</c>.</summary>
    string ServiceName { get; }

    string Name { get; }

    /// <summary>The path of its requests, <c>/kvcluster.v1.Kv/Get</c>.</summary>
    string FullName { get; }
}

namespace Grpc.Core;

/// <summary>On the base class of a generated service: names the static method that binds it.</summary>
[AttributeUsage(AttributeTargets.Class)]
internal sealed class BindServiceMethodAttribute(Type bindType, string bindMethodName) : Attribute
{
    public Type BindType { get; } = bindType;

    public string BindMethodName { get; } = bindMethodName;
}

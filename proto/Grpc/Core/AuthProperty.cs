using System.Text;

namespace Grpc.Core;

/// <summary>One property of an authenticated caller.</summary>
internal sealed class AuthProperty
{
    private AuthProperty(string name, string value)
    {
        Name = name;
        Value = value;
    }

    public string Name { get; }

    public string Value { get; }

    /// <param name="name">Its name.</param>
    /// <param name="valueBytes">UTF-8.</param>
    public static AuthProperty Create(string name, byte[] valueBytes) => new(name, Encoding.UTF8.GetString(valueBytes));
}

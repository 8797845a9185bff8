using System.Collections.ObjectModel;
using Grpc.Core.Interceptors;

namespace Grpc.AspNetCore.Server;

/// <summary>The types of a server's interceptors. There is one instance of each, from the service provider or created with it.</summary>
internal sealed class InterceptorCollection : Collection<Type>
{
    public void Add<TInterceptor>()
        where TInterceptor : Interceptor => Add(typeof(TInterceptor));
}
